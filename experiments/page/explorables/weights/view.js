import { address, number, remember } from "../../../../icl_lab/pages/shared/address.js";
import { broken, opened, wake } from "../../../../icl_lab/pages/shared/figure.js";
import { scientific } from "../../../../icl_lab/pages/shared/numbers.js";
import { drags, element, slider, unpacked } from "../../../../icl_lab/pages/shared/svg.js";
import { built } from "../layer/model.js";
import { balanced, begun, bestRate, EVERY, folded, largestDifference, levels, pace, populationLoss, rateOf, STEPS, train, uniforms } from "./model.js";

const WIDTH = 360, HEIGHT = 230, HIGHEST = 0.36, NEAR = 1.05, CELL = 36, SIDE = 210, FAR = 0.8; // fallback.py has the same
const SLICE = 10, AT_ONCE = 10; // milliseconds, and steps of a network between looks at the clock
const WORDS = ["nothing learned: v", "one direction: v (1 − N / 2(N + 1.8))", "the best step: v (1 − N / (N + 1.8))"];

/**
 * Takes the static figure over, if a gradient and three steps of Adam are those of JAX; else says so and leaves it.
 *
 * @param {HTMLElement} root
 * @param {{ weights: string, steps: number[], waits: boolean[] }} stored the networks of ../layer
 */
export function mount(root, stored) {
  const { data, $ } = opened(root);
  /** @type {any} */
  const check = Object.fromEntries(Object.entries(data.check).map(([name, text]) => [name, unpacked(text)]));
  const batches = check.after.length / 36, part = (name, k) => {
    const size = check[name].length / batches;
    return check[name].subarray(k * size, (k + 1) * size);
  };
  const tasks = Array.from({ length: batches }, (_, k) =>
    ({ n: data.n, x: part("x", k), y: part("y", k), query: part("query", k), target: part("target", k) }));
  const worst = largestDifference({ ...check, tasks, rate: data.rate });
  if (!(worst <= data.tolerance)) {
    broken(root, `The training of this page differs from JAX by ${worst.toPrecision(1)}`);
    return;
  }
  $("check").textContent = `✓ One gradient and ${batches} steps of Adam are those of JAX: the largest difference is ${scientific(worst)}.`;

  const members = stored.waits.length, floats = unpacked(stored.weights), times = stored.steps.length, last = STEPS / EVERY;
  /** Weights and losses of every network at every measurement so far. */
  const history = (weights, n) => weights.map((along) => along.map((one) => ({ ...one, loss: populationLoss(one, n) })));
  const kept = history(Array.from({ length: members }, (_, m) => Array.from({ length: times }, (_, t) => {
    const at = (m * times + t) * 18;
    return { a: floats.slice(at, at + 9), b: floats.slice(at + 9, at + 18) };
  })), data.n);
  const usual = { n: data.n, rate: data.rate, seed: 1 };
  let state, running = false;

  /** Networks before their first step. */
  function live(settings) {
    const randoms = Array.from({ length: members }, (_, m) => uniforms(settings.seed, m)), networks = randoms.map(begun);
    return { networks, randoms, turn: 0, goal: 0, along: history(networks.map((one) => [folded(one.params)]), settings.n) };
  }
  const start = () => ({ ...usual, live: null, network: 0, time: last });
  const along = () => (state.live ? state.live.along : kept);
  const measured = () => EVERY * (along()[0].length - 1); // steps that all networks have done
  const anew = () => { Object.assign(state, { live: live(state), time: 0 }); running = false; };

  /** Trains one network by some steps, and measures all when they have come as far. */
  function advance() {
    const { networks, randoms, turn, along } = state.live;
    train(networks[turn], randoms[turn], state.n, state.rate, AT_ONCE);
    state.live.turn = (turn + 1) % members;
    if (state.live.turn || networks[0].steps % EVERY) return;
    networks.forEach((one, m) => along[m].push(...history([[folded(one.params)]], state.n)[0]));
    state.time = along[0].length - 1;
    running = measured() < state.live.goal;
  }

  function slice() {
    if (!running) return;
    const until = performance.now() + SLICE, { time } = state;
    while (running && performance.now() < until) advance();
    if (state.time !== time || !running) update();
    if (running) setTimeout(slice); // between slices the page answers
    else keep();
  }

  function run(goal) {
    if (!state.live) anew();
    state.live.goal = goal;
    if (!running && measured() < goal) { running = true; setTimeout(slice); }
  }

  function recalled() {
    const { place, state: said } = address(), found = start();
    if (place !== "weights") return found;
    found.network = Math.round(number(said, "network", 1, members, 1)) - 1;
    found.time = Math.round(number(said, "time", 0, last, last));
    found.n = Math.round(number(said, "n", 2, 32, usual.n));
    found.rate = number(said, "rate", 1e-4, 1e-2, usual.rate);
    found.seed = Math.round(number(said, "seed", 1, 999999, 1));
    if (said.has("seed")) Object.assign(found, { live: live(found), time: 0 });
    return found;
  }
  const keep = () => remember("weights", {
    seed: state.live ? String(state.seed) : "", rate: state.rate === usual.rate ? "" : String(state.rate), n: state.n === usual.n ? "" : String(state.n),
    network: state.network ? String(state.network + 1) : "", time: state.live || state.time === last ? "" : String(state.time),
  });

  const plot = $("plot"), maps = $("maps"), px = (time) => WIDTH * time / last;
  const py = (loss) => HEIGHT * (1 - Math.min(loss, 1.02 * HIGHEST) / HIGHEST);
  const lines = [...plot.querySelectorAll(".level-line")], labels = lines.map((line) => line.nextElementSibling);
  const curves = [...plot.querySelectorAll(".trained, .measured-line")];
  const { line, place } = slider(plot, HEIGHT, { "aria-label": "Training step", "aria-valuemax": STEPS }, (key) => {
    const { time } = state;
    const to = { ArrowLeft: time - 1, ArrowDown: time - 1, ArrowRight: time + 1, ArrowUp: time + 1, PageDown: time - 10, PageUp: time + 10, Home: 0, End: last }[key];
    return to === undefined ? to : () => { moved(to); keep(); };
  });
  element(line, "path", { class: "cursor", d: `M0 0V${HEIGHT}` });
  const dot = element(line, "circle", { class: "trained", r: 5 });
  const grids = [...maps.querySelectorAll("g")].map((group) => ({
    title: group.querySelector("text"), rects: [...group.querySelectorAll("rect")], values: [...group.querySelectorAll(".value")],
  }));

  const ratio = (value) => value.toFixed(value < 9.995 ? 3 : 1);
  function said() {
    const { network, time, n } = state, best = levels(n)[2], now = along()[network], at = now[time], step = (EVERY * time).toLocaleString("en");
    if (!time) return state.live ? `Ten networks of seed ${state.seed} wait for their first step.` : "Before their first step all networks predict zero.";
    const near = along().filter((one) => one[time].loss < NEAR * best).length;
    const first = `After ${step} steps ${near} of ${members} networks have the loss of the best step. Network ${network + 1} has ${ratio(at.loss / best)} times that loss`;
    const before = now.slice(Math.max(0, time - 19), time + 1), long = before.length === 20 && before.every((one) => one.loss < NEAR * best);
    if (long) {
      const rate = before.reduce((sum, one) => sum + rateOf(one, n) / 20, 0);
      return `${first}; over its last 1,000 steps its own step had the learning rate ${rate.toFixed(2)}, and the closed form says ${bestRate(n).toFixed(2)}.`;
    }
    const rests = before.length === 20 && before.slice(-6).every((one) => Math.abs(one.loss / at.loss - 1) < 0.01);
    if (at.loss < NEAR * best || !rests) return `${first}.`;
    const level = levels(n).findIndex((value) => Math.abs(at.loss / value - 1) < 0.03);
    return `${first}: it rests ${level === 1 ? "where one direction is learned" : level === 0 ? "where nothing is learned" : "on none of the lines"}.`;
  }

  /** The line 1 - rate l over eigenvalues l from 0 to FAR: fallback.factor. */
  const factor = (rate) => `M0 0L${SIDE} ${(SIDE / 2 * FAR * rate).toFixed(1)}`;

  function draw() {
    const rates = pace(along()[state.network][state.time], state.n);
    $("factors").setAttribute("d", rates.map(factor).join(""));
    $("best").setAttribute("d", factor(bestRate(state.n)));
    root.querySelectorAll("[data-part=paces]").forEach((text, k) => { text.textContent = `1 − ${rates[k].toFixed(2)} λ`.replace("-0.00", "0.00").replace("− -", "+ "); });
    $("pace").textContent = `best step: 1 − ${bestRate(state.n).toFixed(2)} λ`;
    const hand = built(bestRate(state.n), state.n), one = along()[state.network][state.time];
    const shown = [balanced(one), balanced(hand)], most = Math.max(...[...shown[1].a, ...shown[1].b].map(Math.abs));
    grids.forEach(({ title, rects, values }, k) => {
      const side = k % 2, row = k < 2 ? "a" : "b";
      title.textContent = `${row.toUpperCase()}, ${side ? "by hand" : `network ${state.network + 1}`}`;
      shown[side][row].forEach((value, i) => {
        if (row === "a" ? i >= 6 : i % 3 !== 2) return;
        rects[i].dataset.sign = value > 0 ? "up" : "down";
        rects[i].setAttribute("fill-opacity", (0.7 * Math.min(1, Math.abs(value) / most)).toFixed(2));
        values[i].textContent = (Math.round(100 * value) / 100 || 0).toFixed(2).replace("-", "−");
      });
    });
    maps.setAttribute("aria-label", `Weights A and B of network ${state.network + 1} as maps, beside those of a gradient step by hand`);
  }

  function update() {
    levels(state.n).forEach((value, i) => {
      lines[i].setAttribute("d", `M0 ${py(value).toFixed(1)}H${WIDTH}`);
      labels[i].setAttribute("y", (py(value) - 5).toFixed(1));
      labels[i].textContent = `${WORDS[i]} = ${value.toFixed(3)}`;
    });
    along().forEach((one, m) => {
      curves[m].setAttribute("d", `M${one.map(({ loss }, t) => `${px(t).toFixed(1)} ${py(loss).toFixed(1)}`).join("L")}`);
      curves[m].setAttribute("class", m === state.network ? "trained" : "measured-line");
    });
    const at = along()[state.network][state.time], step = (EVERY * state.time).toLocaleString("en");
    place(px(state.time).toFixed(1), EVERY * state.time, `step ${step}, loss of network ${state.network + 1} ${at.loss.toFixed(3)}`);
    dot.setAttribute("cy", py(at.loss).toFixed(1));
    draw();
    $("network").value = state.network + 1;
    $("rate").value = Math.log10(state.rate);
    $("rate").setAttribute("aria-valuetext", state.rate.toPrecision(2));
    $("rate-value").textContent = Number(state.rate.toPrecision(2));
    $("n").value = $("n-value").textContent = state.n;
    if ($("seed") !== document.activeElement) $("seed").value = state.live ? state.seed : "";
    const done = state.live && measured() >= STEPS;
    $("train").textContent = running ? "Stop" : state.live && state.live.networks[0].steps && !done ? "Train on" : "Train ten networks";
    $("step").disabled = running || done;
    $("back").hidden = !state.live;
    const text = running ? `Ten networks of seed ${state.seed} are training.` : said();
    if ($("said").textContent !== text) $("said").textContent = text; // else it would be read out at every frame
    root.dataset.steps = state.live ? String(measured()) : "";
  }

  for (let m = 0; m < members; m++) $("network").add(new Option(String(m + 1), String(m + 1)));
  const moved = (time) => { state.time = Math.max(0, Math.min(along()[0].length - 1, time)); update(); };
  drags(plot, (x) => moved(Math.round(x / px(1))), keep);
  $("network").addEventListener("input", (event) => { state.network = event.target.value - 1; update(); keep(); });
  const changed = (name, low, high, read) => $(name).addEventListener("input", (event) => {
    const value = read(event.target.valueAsNumber);
    if (!(value >= low && value <= high)) return;
    state[name] = value;
    anew();
    update();
    keep();
  });
  changed("rate", 1e-4, 1e-2, (value) => Number((10 ** value).toPrecision(3)));
  changed("n", 2, 32, Math.round);
  changed("seed", 1, 999999, Math.round);
  $("train").addEventListener("click", () => {
    if (running) { running = false; update(); keep(); return; }
    if (state.live && measured() >= STEPS) { state.seed += 1; anew(); } // ten others
    run(STEPS);
    update();
  });
  $("step").addEventListener("click", () => {
    if (!state.live) anew();
    run(measured() + EVERY);
    update();
  });
  $("back").addEventListener("click", () => { running = false; state = start(); update(); keep(); $("train").focus(); });
  addEventListener("hashchange", () => { if (address().place === "weights") { running = false; state = recalled(); update(); } });
  addEventListener("resize", update);
  state = recalled();
  wake(root);
  update();
}
