/**
 * Makes one stop of the Tab key of several elements.
 *
 * @param {(HTMLElement | SVGElement)[]} stops
 * @param {(event: KeyboardEvent, at: number) => number | undefined} goes where a key leads from a place, from -1 to the count
 */
export function oneStop(stops, goes) {
  stops.forEach((stop, at) => {
    stop.tabIndex = at ? -1 : 0;
    stop.addEventListener("focus", () => { for (const one of stops) one.tabIndex = one === stop ? 0 : -1; });
    stop.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const to = goes(event, at);
      if (to === undefined) return;
      event.preventDefault();
      stops[(to + stops.length) % stops.length].focus();
    });
  });
}
