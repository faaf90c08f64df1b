import { address, copies, number, remember } from "../../../../icl_lab/pages/shared/address.js";
import { broken, opened, wake } from "../../../../icl_lab/pages/shared/figure.js";
import { scientific } from "../../../../icl_lab/pages/shared/numbers.js";
import { oneStop } from "../../../../icl_lab/pages/shared/stops.js";
import { element, handle, unpacked } from "../../../../icl_lab/pages/shared/svg.js";
import { aligned, built, gradientStep, implied, largestDifference, layer, leastSquares, mixed, moments, onlyDirection, relativeLoss } from "./model.js";

const UNIT = 126, LEVELS = [0.02, 0.08, 0.18, 0.32];
const PLANE = { x: 1.2, y: 1, unit: UNIT };
const far = (size) => Math.max(1, size ** 2); // a step grows with the square of its inputs: so much of its plane is shown
const STAR = "M0-8L2-2L8-2L3 2L5 8L0 4L-5 8L-3 2L-8-2L-2-2Z", CROSS = "M-5-5L5 5M-5 5L5-5";

/** Takes the static figure over, if this page's layer agrees with JAX; else says so and leaves it as it is. */
export function mount(root) {
  const { data, $ } = opened(root);
  const floats = unpacked(data.weights), times = data.steps.length, members = data.waits.length, last = times - 1;
  const recorded = (member, time) => {
    const at = (member * times + time) * 18;
    return { a: floats.subarray(at, at + 9), b: floats.subarray(at + 9, at + 18) };
  };

  const check = Object.fromEntries(Object.entries(data.check).map(([name, text]) => [name, unpacked(text)]));
  const count = check.query.length / 2, n = check.y.length / count;
  const pairs = (values) => Array.from({ length: values.length / 2 }, (_, i) => [values[2 * i], values[2 * i + 1]]);
  const prompts = Array.from({ length: count }, (_, i) => ({
    x: pairs(check.x.subarray(2 * n * i, 2 * n * (i + 1))), y: check.y.subarray(n * i, n * (i + 1)),
  }));
  const finals = Array.from({ length: members }, (_, m) => recorded(m, last));
  const worst = largestDifference(finals, prompts, pairs(check.query), check.predictions);
  if (!(worst <= data.tolerance)) {
    broken(root, `The layer that this page computes differs from JAX by ${worst.toPrecision(1)}`);
    return;
  }
  $("check").textContent = `✓ This page’s layer agrees with JAX on ${count} prompts and ${members} networks: the largest difference is ${scientific(worst)}.`;

  const start = () => ({ member: 0, time: last, mix: 0, size: 1, truth: [...data.truth], x: data.prompt.map((p) => [...p]), own: null });
  let state = start();

  /** The state from the address, as far as it can be read. */
  function recalled() {
    const { place, state: said } = address(), found = start();
    if (place !== "layer") return found;
    const list = (name, size) => {
      const values = (said.get(name) ?? "").split(",").map(Number);
      return values.length === size && values.every(Number.isFinite) ? values : null;
    };
    found.member = Math.round(number(said, "network", 1, members, 1)) - 1;
    found.time = Math.round(number(said, "time", 0, last, last));
    found.mix = number(said, "hand", 0, 1, 0);
    found.size = number(said, "size", 0.5, 2, 1);
    found.truth = list("truth", 2) ?? found.truth;
    const x = list("x", 2 * found.x.length);
    if (x) found.x = pairs(x);
    found.own = list("own", 18);
    return found;
  }

  function kept() {
    const usual = start(), text = (values) => values.flat().map((v) => +v.toFixed(3)).join();
    const unless = (value, same) => (String(value) === String(same) ? "" : value);
    remember("layer", {
      network: unless(state.member + 1, 1), time: unless(state.time, last), hand: unless(state.mix, 0),
      size: unless(state.size, 1), truth: unless(text(state.truth), text(usual.truth)),
      x: unless(text(state.x), text(usual.x)), own: state.own ? text(state.own) : "",
    });
  }

  const left = $("prompt"), right = $("weights");
  for (const plane of [left, right]) plane.querySelector(".static").remove();
  const rings = LEVELS.map(() => element(right, "ellipse", { class: "level" }));
  const only = element(right, "path", { class: "only" }), trail = element(right, "path", { class: "trail" });
  const arrow = element(right, "path", { class: "step", "marker-end": "url(#tip)" });
  const squares = element(right, "path", { class: "squares", d: CROSS });
  const ring = element(right, "circle", { class: "trained", r: 7 });
  const wide = { ...PLANE };
  const moved = (ended) => { update(); if (ended) kept(); };
  const points = state.x.map((_, i) => handle(left, PLANE, () => state.x[i], (to, ended) => { state.x[i] = to; moved(ended); },
    (group) => element(group, "circle", { r: 8, class: "point" })));
  oneStop([...left.querySelectorAll(".handle")], ({ key, shiftKey }, at) => // arrows move a point
    (key === "Enter" || key === " " ? at + (shiftKey ? -1 : 1) : key >= "1" && key <= String(points.length) ? Number(key) - 1 : undefined));
  const star = handle(right, wide, () => state.truth, (to, ended) => { state.truth = to; moved(ended); },
    (group) => element(group, "path", { d: STAR, class: "truth" }));

  const network = $("network");
  for (let m = 0; m < members; m++) network.add(new Option(`${m + 1}${data.waits[m] ? ", still waits" : ""}`, String(m + 1)));
  $("time").max = last;
  const cells = Array.from({ length: 18 }, (_, i) => {
    const cell = document.createElement("input");
    Object.assign(cell, { type: "number", step: 0.01, ariaLabel: `${i < 9 ? "A" : "B"}, row ${Math.floor(i % 9 / 3) + 1}, column ${i % 3 + 1}` });
    cell.addEventListener("input", () => {
      if (!Number.isFinite(cell.valueAsNumber)) return;
      state.own = [...flat(current())];
      state.own[i] = cell.valueAsNumber;
      moved(true);
    });
    $(i < 9 ? "a" : "b").append(cell);
    return cell;
  });

  const flat = ({ a, b }) => [...a, ...b];
  const now = (time) => {
    const weights = recorded(state.member, time);
    return state.mix ? mixed(weights, aligned(weights, built(data.rate, state.x.length)), state.mix) : weights;
  };
  const current = () => (state.own ? { a: state.own.slice(0, 9), b: state.own.slice(9) } : now(state.time));
  const percent = (share) => (100 * share).toFixed(share < 0.0995 ? 1 : 0);

  function said(weights, off, step) {
    const who = state.own ? "With these numbers the layer’s answer is" : state.mix
      ? `Mixed with ${Math.round(100 * state.mix)} % of the weights by hand, the layer’s answer is`
      : `After ${data.steps[state.time].toLocaleString("en")} steps of training the layer’s answer is`;
    const sentences = [`${who} ${step > 1e-9 ? `${percent(off / step)} % of the step` : off.toFixed(2)} away from one step of gradient descent.`];
    if (!state.own && !state.mix && data.waits[state.member] && state.time > 10) {
      sentences.push(`It still waits on a plateau of the loss${onlyDirection(weights) ? ": it can move its answer along one direction only (dashed)" : ""}.`);
    }
    if (state.size !== 1) {
      const loss = relativeLoss(state.size, data.rate, 1 / 3, state.x.length);
      sentences.push(`At inputs ${state.size} times as large, the step has ${loss.toPrecision(2)} times the loss of predicting zero on average, by its closed form${off < 0.1 * step ? ", and the layer goes with it" : ""}.`);
    }
    return sentences.join(" ");
  }

  function update() {
    const x = state.x.map((p) => p.map((v) => state.size * v));
    const prompt = { x, y: x.map(([u, v]) => u * state.truth[0] + v * state.truth[1]) };
    const weights = current(), at = implied(weights, prompt), step = gradientStep(data.rate, prompt);
    const best = leastSquares(prompt), { s } = moments(prompt);
    wide.unit = UNIT / far(state.size);
    const px = (/** @type {number[]} */ [u, v]) => `${(u * wide.unit).toFixed(1)} ${(-v * wide.unit).toFixed(1)}`;
    points.forEach((place, i) => {
      place(`example ${i + 1}, label ${prompt.y[i].toFixed(2)}`);
      const drawn = left.querySelectorAll(".point")[i];
      drawn.dataset.sign = prompt.y[i] > 0 ? "up" : "down";
      drawn.setAttribute("fill-opacity", Math.min(Math.abs(prompt.y[i]) / 1.2, 1).toFixed(2));
    });
    star("true weights");
    const half = (s[0] + s[2]) / 2, gap = Math.hypot((s[0] - s[2]) / 2, s[1]), angle = Math.atan2(2 * s[1], s[0] - s[2]) / 2;
    const radius = (level, curvature) => (wide.unit * Math.sqrt(2 * level / Math.max(curvature, 1e-4))).toFixed(1);
    rings.forEach((each, i) => {
      each.setAttribute("rx", radius(LEVELS[i], half + gap));
      each.setAttribute("ry", radius(LEVELS[i], half - gap));
      each.setAttribute("transform", `translate(${px(best)}) rotate(${(-angle * 180 / Math.PI).toFixed(1)})`);
    });
    const direction = onlyDirection(weights);
    only.setAttribute("d", direction ? `M${px(direction.map((v) => -9 * v))}L${px(direction.map((v) => 9 * v))}` : "");
    arrow.setAttribute("d", `M0 0L${px(step)}`);
    const way = state.own ? [] : data.steps.slice(0, state.time + 1).map((_, t) => px(implied(now(t), prompt)));
    trail.setAttribute("d", way.length ? `M${way.join("L")}` : "");
    squares.setAttribute("transform", `translate(${px(best)})`);
    ring.setAttribute("r", 7 * Math.max(1, 0.85 / (right.getScreenCTM()?.a || 1)));
    ring.setAttribute("transform", `translate(${px(at)})`);
    const off = Math.hypot(at[0] - step[0], at[1] - step[1]);
    $("said").textContent = said(weights, off, Math.hypot(...step));
    $("step").textContent = data.steps[state.time].toLocaleString("en");
    $("times").textContent = `× ${state.size}`;
    $("far").textContent = far(state.size) > 1 ? ` Scale 1 : ${Number(far(state.size).toPrecision(2))}.` : "";
    $("share").textContent = `${Math.round(100 * state.mix)} %`;
    network.value = state.member + 1;
    $("time").value = state.time; $("hand").value = state.mix; $("size").value = state.size;
    flat(weights).forEach((value, i) => { if (cells[i] !== document.activeElement) cells[i].value = value.toFixed(3); });
    root.dataset.off = off / Math.max(Math.hypot(...step), 1e-9);
  }

  const listen = (name, set) => {
    $(name).addEventListener("input", (event) => { set(Number(event.target.value)); state.own = null; moved(false); });
    $(name).addEventListener("change", kept);
  };
  listen("network", (value) => { state.member = value - 1; });
  listen("time", (value) => { state.time = value; });
  listen("hand", (value) => { state.mix = value; });
  listen("size", (value) => { state.size = value; });
  $("back").addEventListener("click", () => { state.own = null; moved(true); });
  $("reset").addEventListener("click", () => { state = start(); moved(true); });
  copies($("link"), kept);
  addEventListener("hashchange", () => { if (address().place === "layer") { state = recalled(); update(); } });
  addEventListener("resize", update);
  state = recalled();
  wake(root);
  update();
}
