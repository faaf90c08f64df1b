import { address, remember } from "../../pages/shared/address.js";
import { broken, opened, wake } from "../../pages/shared/figure.js";
import { scientific } from "../../pages/shared/numbers.js";
import { unpacked } from "../../pages/shared/svg.js";
import { filters, least, residual, training } from "./model.js";

const WIDTH = 470, HEIGHT = 250, LOW = -0.75, HIGH = 1.15; // of the plot; figure.py has the same

/** Takes the static figure over, if residuals calculated here are those of Python; else says so and leaves it. */
export function mount(root) {
  const { data, $ } = opened(root);
  const { contexts, queries, size, families, learners, fits, others, outputs } = data;
  const [eigenvalues, weights, grid, factors] = ["eigenvalues", "weights", "grid", "factors"].map((name) => unpacked(data[name]));
  const span = contexts * queries * size, every = Array.from({ length: weights.length / span }, (_, output) =>
    ({ contexts, queries, size, eigenvalues, weights: weights.subarray(output * span, (output + 1) * span) }));
  const on = { 1: every, 2: every.map(training) }, answers = { 1: unpacked(data.answers), 2: unpacked(data.doubled) };
  const of = (learner, family, steps, theta, scale = 1) => {
    const here = on[scale][outputs[learner]], count = here.contexts * queries, f = answers[scale].subarray(learner * count, (learner + 1) * count);
    return residual(here, f, (l) => filters[family](l, steps, ...theta), scale);
  };
  const worst = Math.max(0, ...data.checks.map(({ learner, family, steps, theta, residual: told }) => {
    const difference = Math.abs(of(learner, family, steps, theta) - told) / Math.max(1, told);
    return Number.isNaN(difference) ? Infinity : difference;
  }));
  if (!(worst <= data.tolerance)) {
    broken(root, `The residuals that this page calculates differ from Python’s by ${worst.toPrecision(1)}`);
    return;
  }
  if (data.checks.length) $("check").textContent = `✓ Residuals calculated here are those of identify on ${data.checks.length} algorithms: the largest difference is ${scientific(worst)}.`;

  const usual = (family) => ({ steps: 1, theta: families[family].usual });
  const best = (learner, family) => {
    const { steps, theta } = fits[learner]?.[family] ?? usual(family);
    return { learner, family, steps, theta: [...theta] };
  };
  const start = () => best(...data.start);
  let state = start();

  function recalled() {
    const { place, state: said } = address();
    if (place !== "fingerprint") return start();
    const at = (name, names, first) => { const i = names.indexOf(said.get(name)); return i < 0 ? first : i; };
    const family = at("family", families.map((f) => f.name), data.start[1]), found = best(at("learner", learners, data.start[0]), family);
    const steps = Number(said.get("steps")), theta = (said.get("numbers") ?? "").split(",").map(Number);
    if (Number.isInteger(steps) && steps >= 1 && steps <= families[family].most) found.steps = steps;
    if (theta.length === families[family].parameters.length && theta.every((v) => v > 0 && v < 1e3)) found.theta = theta;
    return found;
  }

  const kept = () => remember("fingerprint", {
    learner: learners[state.learner], family: families[state.family].name, steps: String(state.steps), numbers: state.theta.map((v) => v.toPrecision(4)).join(),
  });
  const px = (l) => (WIDTH * Math.log(l / grid[0]) / Math.log(grid.at(-1) / grid[0])).toFixed(1);
  const py = (r) => (HEIGHT * (HIGH - Math.min(Math.max(r, LOW - 1), HIGH + 1)) / (HIGH - LOW)).toFixed(1);
  const line = (points) => points.map(([l, r], i) => `${i ? "L" : "M"}${px(l)} ${py(r)}`).join("");
  const percent = (share) => (share < 1e-3 ? `${(100 * share).toFixed(2)} %` : share < 0.1 ? `${(100 * share).toFixed(1)} %` : `${(100 * share).toFixed(0)} %`);

  function update() {
    const other = others[state.learner];
    for (const name of ["filter", "ladder"]) $(name).hidden = !!other;
    for (const part of root.querySelectorAll(".numbered, [data-part=fit]")) part.hidden = !!other;
    if ($("other")) $("other").hidden = !other;
    $("learner").value = state.learner;
    if (other) {
      $("nearest").textContent = other.nearest;
      $("predictions").setAttribute("d", other.path);
      $("said").textContent = other.said;
      return;
    }
    const family = families[state.family], members = factors.length / learners.length / grid.length;
    const values = factors.subarray(state.learner * members * grid.length, (state.learner + 1) * members * grid.length);
    $("members").setAttribute("d", Array.from({ length: members }, (_, m) =>
      line(Array.from(grid, (l, g) => [l, values[m * grid.length + g]]).filter(([, r]) => Number.isFinite(r)))).join(""));
    const dense = Array.from({ length: 200 }, (_, i) => grid[0] * (grid.at(-1) / grid[0]) ** (i / 199));
    $("curve").setAttribute("d", line(dense.map((l) => [l, 1 - l * filters[family.name](l, state.steps, ...state.theta)])));
    const here = of(state.learner, family.name, state.steps, state.theta), twice = of(state.learner, family.name, state.steps, state.theta, 2);
    const steps = family.most > 1 ? ` with ${state.steps} step${state.steps > 1 ? "s" : ""}` : "";
    $("said").textContent = `${family.name}${steps} is ${percent(here)} of the prediction away from ${learners[state.learner]}, ${here <= data.named ? "within" : "outside"} the bar of 5 %. On inputs twice as large it is ${twice < 10 ? `${percent(twice)} away` : "far off"}.`;
    root.dataset.residual = here;
    $("family").value = state.family;
    $("steps").value = state.steps;
    $("steps").max = family.most;
    $("steps").closest("label").hidden = family.most === 1;
    $("fit").hidden = !family.parameters.length;
    for (const i of [0, 1]) {
      const label = $(`number-${i}`).closest("label"), name = family.parameters[i];
      label.hidden = name === undefined;
      if (name === undefined) continue;
      const [low, high] = family.bounds[i].map(Math.log10);
      Object.assign($(`number-${i}`), { min: low, max: high, step: (high - low) / 400, value: Math.log10(state.theta[i]) });
      $(`number-${i}`).setAttribute("aria-valuetext", state.theta[i].toPrecision(3));
      $(`name-${i}`).textContent = name;
      $(`value-${i}`).textContent = Number(state.theta[i].toPrecision(3));
    }
    root.querySelectorAll(".ladder tbody tr").forEach((row, f) => {
      const { residual: told, steps: k } = fits[state.learner][f];
      row.classList.toggle("chosen", f === state.family);
      row.classList.toggle("near", told <= data.named);
      row.cells[1].textContent = families[f].most > 1 ? k : "";
      row.querySelector("rect").setAttribute("width", Math.max(1, 25 * (4 + Math.log10(Math.max(told, 1e-4)))).toFixed(1));
      row.cells[3].textContent = percent(told);
    });
  }

  learners.forEach((name, i) => $("learner").add(new Option(name, i)));
  $("learner").closest("label").hidden = learners.length === 1;
  families.forEach(({ name }, i) => $("family").add(new Option(name, i)));
  const listen = (name, set) => {
    $(name).addEventListener("input", (event) => { set(Number(event.target.value)); update(); });
    $(name).addEventListener("change", kept);
  };
  listen("learner", (value) => { state = best(value, state.family); });
  listen("family", (value) => { state = best(state.learner, value); });
  listen("steps", (value) => { state.steps = Math.min(Math.max(1, Math.round(value) || 1), families[state.family].most); });
  for (const i of [0, 1]) listen(`number-${i}`, (value) => { state.theta[i] = 10 ** value; });
  $("fit").addEventListener("click", () => {
    const { name, bounds } = families[state.family];
    state.theta = least((theta) => { const off = of(state.learner, name, state.steps, theta); return Number.isNaN(off) ? Infinity : off; }, state.theta, bounds);
    update();
    kept();
  });
  addEventListener("hashchange", () => { if (address().place === "fingerprint") { state = recalled(); update(); } });
  state = recalled();
  wake(root);
  update();
}
