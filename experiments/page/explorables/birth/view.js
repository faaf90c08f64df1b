import { address, copies, number, remember } from "../../../../icl_lab/pages/shared/address.js";
import { broken, opened, wake } from "../../../../icl_lab/pages/shared/figure.js";
import { bytes, drags, unpacked } from "../../../../icl_lab/pages/shared/svg.js";
import { answer, attention, crossing, CURVES, difference, matrices, softmax, worst } from "./model.js";

const WIDTH = 360, HEIGHT = 230, THICK = 14, ITEM = 1, FORMED = 0.9; // fallback.py has the same
const OWN = /^[0-5]{9}$/; // one of six items or labels for each token: live.py

/** Takes the static figure over, if the recorded measures are sums of the recorded maps; else says so and leaves it. */
export function mount(root) {
  const { data, $ } = opened(root);
  const { n, steps, hold } = data, share = unpacked(data.share), last = steps.length - 1, target = 2 * n;
  const arms = data.arms.map(({ key, name, maps, curves }) =>
    ({ key, name, maps: bytes(maps), curves: unpacked(curves) }));
  /** @type {(one: Element, name: string, value: any) => void} */
  const set = (one, name, value) => one.setAttribute(name, value);
  const percent = (value) => `${(100 * value).toFixed(0)} %`;
  const { sequences, shapes, logits, tolerance } = data.live, network = matrices(bytes(data.live.matrices), shapes);
  const off = worst(arms, share, data.half, data.float), wrong = difference(network, sequences, unpacked(logits)) / tolerance;
  if (!(Math.max(off, wrong) <= 1)) {
    broken(root, `Maps or logits differ from JAX’s by ${Math.max(off, wrong).toPrecision(2)} times what rounding allows`);
    return;
  }
  $("check").textContent = `✓ ILA1, TLA2 and TILA2 of these ${arms.length * steps.length} pairs of maps differ from JAX’s by up to ${percent(off)} of what rounding the maps to 255ths allows, the network’s logits on ${sequences.length} sequences by ${percent(wrong)} of what rounding to float32 allows.`;

  const curve = (arm, name) => arms[arm].curves.subarray(CURVES.indexOf(name) * steps.length).subarray(0, steps.length);
  const onsets = arms.map((_, arm) => crossing(curve(arm, "ic"), steps, (1 + 1 / n) / 2));
  /** @returns {{ arm: number, time: number, own?: string }} */
  const start = () => ({ arm: 0, time: curve(0, "ic").findIndex((value) => value >= FORMED) });
  let state = start();
  const own = $("own"), selects = [...own.querySelectorAll("select")], word = (at) => selects[at].selectedOptions[0].text;
  const chosen = () => selects.map(({ value }) => value).join(""), usual = chosen();
  const words = [...root.querySelector("svg").querySelectorAll("text")], names = words.map((one) => one.innerHTML);

  function recalled() {
    const { place, state: said } = address(), found = start();
    if (place !== "head") return found;
    const arm = arms.findIndex(({ key }) => key === said.get("arm")), own = OWN.exec(said.get("own"))?.[0];
    return { arm: Math.max(0, arm), time: Math.round(number(said, "time", 0, last, found.time)), own };
  }
  const keep = () => remember("head", {
    arm: state.arm ? arms[state.arm].key : "", time: state.time === start().time ? "" : String(state.time), own: state.own ?? "",
  });
  const to = (found) => {
    state = found;
    own.hidden = !state.own;
    [...state.own ?? ""].forEach((which, at) => { selects[at].value = which; });
    update();
  };

  const px = (time) => (WIDTH * time / last).toFixed(1), py = (value) => (HEIGHT * (1 - value)).toFixed(1);
  const line = (values) => `M${Array.from(values, (value, time) => `${px(time)} ${py(value)}`).join("L")}`;
  const count = (value) => Math.round(value).toLocaleString("en");

  function said(now) {
    const { arm, time } = state, late = onsets[arm] - onsets[0];
    const first = `At step ${count(steps[time])} ${now.ic >= FORMED
      ? `the head has formed: labels attend to their items (${percent(now.ila1)}), the target to its item’s label (${percent(now.tila2)}), and ${percent(now.ic)} of the answers are right.`
      : now.ic >= (1 + 1 / n) / 2 ? `the head is forming: ${percent(now.ic)} of the answers are right.`
      : now.cla >= 0.5 ? `the answer is a label of the prompt in ${percent(now.cla)} of cases, and the right one in ${percent(now.ic)}; guessing one of the ${n} gives ${percent(1 / n)}.`
      : `the network answers with any label: ${percent(now.cla)} of the answers are in the prompt, and ${percent(now.ic)} right.`}`;
    return arm ? `${first} With the ${arms[arm].name}${arm < 3 ? ` for ${count(hold)} steps` : ""} the onset comes ${count(Math.abs(late))} steps ${late < 0 ? "sooner" : "later"}.` : first;
  }

  function update() {
    const ran = state.own && answer(network, [...state.own].map(Number)), { arm, time } = ran ? { arm: 0, time: last } : state, one = arms[arm];
    const at = (layer, query, key) => ran ? ran.attention[layer][query][key] : attention(one, n, time, layer, query < target ? query : target + ITEM, key);
    const tokens = state.own ?? usual, same = (key) => tokens[key] === tokens[target];
    words.forEach((one, key) => {
      one.innerHTML = ran ? word(key)[0] : names[key];
      one.previousElementSibling.classList.toggle("same", key % 2 < 1 && same(key));
    });
    const arcs = root.querySelectorAll(".arc"), now = Object.fromEntries(CURVES.map((name) => [name, curve(arm, name)[time]]));
    let drawn = 0;
    const drawArc = (layer, query, key) => set(arcs[drawn++], "stroke-width", (THICK * at(layer, query, key)).toFixed(1));
    for (let query = 1; query <= target; query++) for (let key = 0; key < query; key++) drawArc(0, query, key);
    for (let key = 0; key < target; key++) {
      set(arcs[drawn], "class", `arc ${key % 2 ? same(key - 1) ? "tila2" : "tla2" : ""}`);
      drawArc(1, target, key);
    }
    root.querySelectorAll(".maps svg").forEach((map, layer) => {
      const cells = map.querySelectorAll("rect");
      for (let query = 0, cell = 0; query <= target; query++) for (let key = 0; key <= query; key++) set(cells[cell++], "fill-opacity", at(layer, query, key).toFixed(2));
    });
    for (const name of CURVES) {
      set($("plot").querySelector(`.${name}`), "d", line(curve(arm, name)));
      $(name).textContent = percent(now[name]);
    }
    const [from, to] = [onsets[0], onsets[arm]].map((step) => WIDTH * step / steps[last]), level = Number(py((1 + 1 / n) / 2));
    set($("before"), "d", arm ? line(curve(0, "ic")) : "");
    $("grey").hidden = !arm;
    set($("bracket"), "d", arm ? `M${from.toFixed(1)} ${level - 6}v12m0-6H${to.toFixed(1)}m0-6v12` : "");
    set($("delay"), "x", ((from + to) / 2).toFixed(1));
    set($("delay"), "y", level - 9);
    $("delay").textContent = arm ? `${to < from ? "−" : "+"}${count(Math.abs(onsets[arm] - onsets[0]))}` : "";
    const held = arm === 1 || arm === 2;
    set($("held"), "width", held ? WIDTH * hold / steps[last] : 0);
    $("holding").textContent = held ? "frozen" : "";
    set($("cursor"), "d", `M${px(time)} 0V${HEIGHT}`);
    $("step").textContent = count(steps[time]);
    $("time").value = time;
    set($("time"), "aria-valuetext", `step ${count(steps[time])}`);
    for (const radio of radios) {
      radio.checked = Number(radio.value) === (ran ? arms.length : arm);
      radio.tabIndex = radio.checked ? 0 : -1;
    }
    $("said").textContent = said(now);
    if (!ran) return;
    const shares = softmax(ran.logits), most = Math.max(...shares), like = [1, 3, 5, 7].filter((key) => same(key - 1));
    $("said").textContent = `The network answers ${String.fromCharCode(65 + shares.indexOf(most))} with probability ${percent(most)}. Here ${word(target)} ${like.length
      ? `has label ${like.map(word).join(" and ")}, which gets ${percent(like.reduce((sum, key) => sum + at(1, target, key), 0))} of the target’s attention in layer 2` : "is missing"}.`;
  }

  const radios = [...$("arms").querySelectorAll("input")];
  $("time").max = last;
  const moved = (time) => to({ arm: state.arm, time: Math.max(0, Math.min(last, time)) });
  own.addEventListener("change", () => { to({ ...state, own: chosen() }); keep(); });
  $("time").addEventListener("input", (event) => moved(Number(event.target.value)));
  $("time").addEventListener("change", keep);
  $("arms").addEventListener("change", (event) => {
    const arm = Number(event.target.value);
    to(arms[arm] ? { arm, time: state.time } : { ...state, own: chosen() }); // the last one is the reader's own sequence
    keep();
  });
  drags($("plot"), (x) => moved(Math.round(x * last / WIDTH)), keep);
  $("reset").addEventListener("click", () => {
    [...usual].forEach((which, at) => { selects[at].value = which; });
    to(start());
    keep();
  });
  copies($("link"), keep);
  addEventListener("hashchange", () => { if (address().place === "head") to(recalled()); });
  wake(root);
  to(recalled());
}
