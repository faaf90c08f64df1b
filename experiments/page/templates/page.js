"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const form = document.querySelector(".controls");
const list = document.querySelector(".claims");
const rows = all("li", list).map((row, place) => ({ row, place, text: row.textContent.toLowerCase(), ...row.dataset }));
const verdicts = all("[name=verdict] option", form).map((option) => option.value);
const orders = {
  place: (a, b) => a.place - b.place,
  name: (a, b) => a.name.localeCompare(b.name),
  verdict: (a, b) => verdicts.indexOf(a.verdict) - verdicts.indexOf(b.verdict) || a.place - b.place,
  members: (a, b) => b.members - a.members || a.place - b.place,
};

function filter() {
  const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { row, text, paper, verdict } of rows) {
    const wanted = (!form.paper.value || paper === form.paper.value)
      && (!form.verdict.value || verdict === form.verdict.value) && words.every((word) => text.includes(word));
    row.hidden = !wanted;
    shown += wanted;
  }
  document.querySelector(".none").hidden = shown > 0;
  document.querySelector(".shown").textContent = `${shown} of ${rows.length} claims`;
}

function order() {
  list.append(...rows.toSorted(orders[form.order.value]).map(({ row }) => row));
}

function reset() {
  form.reset();
  filter();
  order();
}

// A link to something that is filtered away or folded shows it first.
function reveal() {
  let target = null;
  try {
    target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch { /* not a name */ }
  if (!target) return;
  if (target.hidden) reset();
  for (let around = target.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
  const show = () => target.scrollIntoView({ behavior: "instant" });
  show();
  for (const wait of [50, 200]) setTimeout(show, wait); // rows near it have their own height only once they are drawn
  if (target.matches("[tabindex]")) target.focus({ preventScroll: true });
}

form.hidden = false;
form.addEventListener("input", filter);
form.order.addEventListener("change", order);
form.addEventListener("submit", (event) => event.preventDefault());
for (const button of all(".reset")) {
  button.addEventListener("click", () => { reset(); form.text.focus(); });
}
for (const link of all("a.filter")) {
  link.addEventListener("click", () => { reset(); form.text.value = link.dataset.text; filter(); });
}
for (const button of navigator.clipboard ? all(".copy") : []) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
for (const wide of all(".scroll, .command code")) {
  if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
}
if (matchMedia("(max-width: 70rem)").matches) document.querySelector(".contents").open = false;
addEventListener("beforeprint", () => { for (const folded of all("details.pictures, details.legend")) folded.open = true; });
addEventListener("hashchange", reveal);
filter();
reveal();
