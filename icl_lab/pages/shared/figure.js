/**
 * What a figure in the page is made of: its data, and its parts by name.
 *
 * @returns {{ data: any, $: (name: string) => any }}
 */
export function opened(root) {
  return {
    data: JSON.parse(root.querySelector("script[type='application/json']").textContent),
    $: (name) => root.querySelector(`[data-part=${name}]`),
  };
}

/** Says why a figure stands still. */
export function broken(root, message) {
  opened(root).$("check").textContent = `✕ ${message}, so the figure stands still.`;
  root.classList.add("broken");
}

/** Shows what only a script can use. */
export function wake(root) {
  for (const part of root.querySelectorAll(".live")) part.hidden = false;
}
