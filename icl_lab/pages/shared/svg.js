/** A new SVG element in `parent`. */
export function element(parent, tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

/** Bytes from base64. @param {string} text */
export function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Float32 numbers, little endian, from base64. */
export function unpacked(text) {
  return new Float32Array(bytes(text).buffer);
}

/** Calls `to` with how far to the right in `svg` a pointer is, while it is dragged, and `ended` at the end. */
export function drags(svg, to, ended) {
  const dragged = (event) => to(new DOMPoint(event.clientX, 0).matrixTransform(svg.getScreenCTM().inverse()).x);
  svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); dragged(event); });
  svg.addEventListener("pointermove", (event) => { if (svg.hasPointerCapture(event.pointerId)) dragged(event); });
  svg.addEventListener("pointerup", ended);
}

/**
 * A vertical line in `svg` that takes keys: a slider.
 *
 * @param {SVGSVGElement} svg
 * @param {number} height that a finger finds
 * @param {{ [name: string]: string | number }} attributes
 * @param {(key: string) => (() => void) | undefined} does what a key does
 * @returns {{ line: SVGElement, place: (x: number | string, value: number, text: string) => void }} the slider, and what moves it
 */
export function slider(svg, height, attributes, does) {
  const line = element(svg, "g", { class: "handle", role: "slider", tabindex: 0, "aria-valuemin": 0, ...attributes });
  const touch = element(line, "rect", { class: "touch", height });
  svg.addEventListener("pointerdown", () => line.focus());
  line.addEventListener("keydown", (event) => {
    const act = does(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  });
  const place = (x, value, text) => {
    const wide = 44 / (svg.getScreenCTM()?.a || 1); // pixels of a finger
    touch.setAttribute("x", -wide / 2);
    touch.setAttribute("width", wide);
    line.setAttribute("transform", `translate(${x} 0)`);
    line.setAttribute("aria-valuenow", value);
    line.setAttribute("aria-valuetext", text);
  };
  return { line, place };
}

/**
 * A point in `svg` that is moved by mouse, touch and keys: arrows (with Shift in small steps), Home and End to the left
 * and right edge, PageUp and PageDown to the upper and lower one.
 *
 * @param {{ x: number, y: number, unit: number }} plane half-widths of the plane in its units, and pixels a unit
 * @param {() => number[]} get
 * @param {(place: number[], ended: boolean) => void} set
 * @returns {(label: string) => void} draws it at its place
 */
export function handle(svg, plane, get, set, draw) {
  const group = element(svg, "g", { tabindex: 0, role: "button", "aria-roledescription": "movable point", class: "handle" });
  const touch = element(group, "circle", { r: 16, class: "touch" });
  const mark = element(group, "g");
  draw(mark);
  const move = (x, y, ended) =>
    set([Math.max(-plane.x, Math.min(plane.x, x)), Math.max(-plane.y, Math.min(plane.y, y))], ended);
  group.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.01 : 0.05, [x, y] = get();
    const to = {
      ArrowLeft: [x - step, y], ArrowRight: [x + step, y], ArrowUp: [x, y + step], ArrowDown: [x, y - step],
      Home: [-plane.x, y], End: [plane.x, y], PageUp: [x, plane.y], PageDown: [x, -plane.y],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    move(...to, true);
  });
  const dragged = (event, ended) => {
    if (!group.hasPointerCapture(event.pointerId)) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    move(at.x / plane.unit, -at.y / plane.unit, ended);
  };
  group.addEventListener("pointerdown", (event) => { group.setPointerCapture(event.pointerId); group.focus(); });
  group.addEventListener("pointermove", (event) => dragged(event, false));
  group.addEventListener("pointerup", (event) => dragged(event, true));
  return (label) => {
    const [x, y] = get(), scale = svg.getScreenCTM()?.a || 1;
    touch.setAttribute("r", 22 / scale); // 44 pixels across, however small the figure is
    mark.setAttribute("transform", `scale(${Math.max(1, 0.85 / scale)})`);
    group.setAttribute("transform", `translate(${x * plane.unit},${-y * plane.unit})`);
    group.setAttribute("aria-label", `${label}, at ${x.toFixed(2)}, ${y.toFixed(2)}`);
  };
}
