/** The fragment of the address is a place and, behind a question mark, a state: `#claims?verdict=fails`. */
export function address() {
  const [place, state = ""] = location.hash.slice(1).split("?");
  try {
    return { place: decodeURIComponent(place), state: new URLSearchParams(state) };
  } catch { // not a name
    return { place: "", state: new URLSearchParams() };
  }
}

/** Writes a state into the address, without a step in the history; what is empty is left out. */
export function remember(place, state) {
  const kept = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#${place}${kept.size ? `?${kept}` : ""}`);
}
