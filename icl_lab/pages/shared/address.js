/** The fragment of the address is a place and, after a question mark, a state: `#claims?verdict=fails`. */
export function address() {
  const [place, state = ""] = location.hash.slice(1).split("?");
  try {
    return { place: decodeURIComponent(place), state: new URLSearchParams(state) };
  } catch { // not a name
    return { place: "", state: new URLSearchParams() };
  }
}

/** A number of a state, if it lies within its bounds; else the usual one. */
export function number(state, name, low, high, usual) {
  const value = state.has(name) ? Number(state.get(name)) : NaN;
  return value >= low && value <= high ? value : usual;
}

/** Lets a button copy the address, after `keep` has written the state into it. */
export function copies(button, keep) {
  button.addEventListener("click", async () => {
    keep();
    await navigator.clipboard?.writeText(location.href);
    button.textContent = "The address has it";
  });
}

/** Writes a state into the address, without a step in the history; what is empty is left out. */
export function remember(place, state) {
  const kept = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#${place}${kept.size ? `?${kept}` : ""}`);
}
