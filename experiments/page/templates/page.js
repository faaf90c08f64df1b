import { address, remember } from "../../../icl_lab/pages/shared/address.js";
import { oneStop } from "../../../icl_lab/pages/shared/stops.js";
import { mount as mountFingerprint } from "../../../icl_lab/identify/explorable/view.js";
import { mount as mountBirth } from "../explorables/birth/view.js";
import { mount as mountLayer } from "../explorables/layer/view.js";
import { mount as mountNames } from "../explorables/names/view.js";
import { mount as mountWeights } from "../explorables/weights/view.js";

// This script stands after the first explorable, which answers while the rest of the page is still read.
const networks = document.getElementById("layer"), stored = JSON.parse(networks.querySelector("script").textContent);
mountLayer(networks);
addEventListener("DOMContentLoaded", () => {
  /** @type {(selector: string, root?: ParentNode) => any[]} */
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  /** @type {any} */
  const form = document.querySelector(".controls");
  const list = document.querySelector(".claims tbody");
  const rows = all("tr", list).map((row, place) => ({ row, place, text: row.textContent.toLowerCase(), ...row.dataset }));
  const verdicts = all("[name=verdict] option", form).map((option) => option.value);
  const filters = ["text", "paper", "experiment", "verdict", "order"];
  const orders = {
    "": (a, b) => a.place - b.place,
    name: (a, b) => a.name.localeCompare(b.name),
    verdict: (a, b) => verdicts.indexOf(a.verdict) - verdicts.indexOf(b.verdict) || a.place - b.place,
    members: (a, b) => b.members - a.members || a.place - b.place,
  };

  function filter() {
    const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, identities = 0;
    for (const { row, text, paper, experiment, verdict, identity } of rows) {
      const wanted = (!form.paper.value || paper === form.paper.value)
        && (!form.experiment.value || experiment === form.experiment.value)
        && (!form.verdict.value || verdict === form.verdict.value) && words.every((word) => text.includes(word));
      row.hidden = !wanted;
      shown += Number(wanted);
      identities += Number(wanted && identity !== undefined);
    }
    all(".none")[0].hidden = shown > 0;
    all(".shown")[0].textContent = `${shown} of ${rows.length} rows: ${shown - identities} claims and ${identities} identities`;
  }

  function order() {
    list.append(...[...rows].sort(orders[form.order.value]).map(({ row }) => row));
  }

  function choose(state) {
    form.reset();
    for (const name of filters) if (state.get(name)) form[name].value = state.get(name);
    filter();
    order();
  }

  function reset() {
    choose(new URLSearchParams());
  }

  // A link to something that is filtered away or folded shows it first.
  function reveal() {
    const { place, state } = address();
    const target = document.getElementById(place);
    if (!target) return;
    if (place === "claims") choose(state);
    if (target.hidden) reset();
    for (let around = target.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
    const own = target.matches("tr") && target.querySelector("details");
    if (own) own.open = true;
    const show = () => target.scrollIntoView({ behavior: "instant" });
    show();
    for (const wait of [50, 200]) setTimeout(show, wait); // rows near it have their own height only once they are drawn
    if (target.matches("[tabindex]")) target.focus({ preventScroll: true });
  }

  form.hidden = false;
  form.addEventListener("input", () => {
    filter();
    remember("claims", Object.fromEntries(filters.map((name) => [name, form[name].value])));
  });
  form.order.addEventListener("change", order);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of all(".reset")) {
    button.addEventListener("click", () => { reset(); remember("claims", {}); form.text.focus(); });
  }
  for (const button of navigator.clipboard ? all(".copy") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  const words = all(".glossary button");
  oneStop(words, ({ key }, at) => ({ ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: words.length - 1 })[key]);
  // What is wider than its place can be scrolled by keys.
  function reachable() {
    for (const wide of all(".scroll, .command code")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
      else wide.removeAttribute("tabindex");
    }
  }
  reachable();
  addEventListener("resize", reachable);
  addEventListener("beforeprint", () => { for (const folded of all("details.legend")) folded.open = true; });
  addEventListener("hashchange", reveal);
  filter();
  reveal();

  mountWeights(document.getElementById("weights"), stored);
  mountFingerprint(document.getElementById("fingerprint"));
  mountNames(document.getElementById("names"));
  mountBirth(document.getElementById("head"));
});
