import { address, copies, number, remember } from "../../../../icl_lab/pages/shared/address.js";
import { broken, opened, wake } from "../../../../icl_lab/pages/shared/figure.js";
import { drags, unpacked } from "../../../../icl_lab/pages/shared/svg.js";
import { attention, crossing, CURVES, worst } from "./model.js";

const WIDTH = 360, HEIGHT = 230, THICK = 14, ITEM = 1, FORMED = 0.9; // fallback.py has the same

/** Takes the static figure over, if the recorded measures are sums of the recorded maps; else says so and leaves it. */
export function mount(root) {
  const { data, $ } = opened(root);
  const { n, steps, hold } = data, share = unpacked(data.share), last = steps.length - 1, target = 2 * n;
  const arms = data.arms.map(({ key, name, maps, curves }) =>
    ({ key, name, maps: Uint8Array.from(atob(maps), (c) => c.charCodeAt(0)), curves: unpacked(curves) }));
  const off = worst(arms, share, data.half, data.float);
  if (!(off <= 1)) {
    broken(root, `The measures of these maps differ from the recorded ones by ${off.toPrecision(2)} times what rounding allows`);
    return;
  }
  $("check").textContent = `✓ ILA1, TLA2 and TILA2 of these ${arms.length * steps.length} pairs of maps are those that JAX recorded: the largest difference is ${Math.round(100 * off)} % of what rounding the maps to 255ths allows.`;

  const curve = (arm, name) => arms[arm].curves.subarray(CURVES.indexOf(name) * steps.length).subarray(0, steps.length);
  const onsets = arms.map((_, arm) => crossing(curve(arm, "ic"), steps, (1 + 1 / n) / 2));
  const start = () => ({ arm: 0, time: curve(0, "ic").findIndex((value) => value >= FORMED) });
  let state = start();

  function recalled() {
    const { place, state: said } = address(), found = start();
    if (place !== "head") return found;
    const arm = arms.findIndex(({ key }) => key === said.get("arm"));
    return { arm: Math.max(0, arm), time: Math.round(number(said, "time", 0, last, found.time)) };
  }
  const keep = () => remember("head", { arm: state.arm ? arms[state.arm].key : "", time: state.time === start().time ? "" : String(state.time) });

  const px = (time) => (WIDTH * time / last).toFixed(1), py = (value) => (HEIGHT * (1 - value)).toFixed(1);
  const line = (values) => `M${Array.from(values, (value, time) => `${px(time)} ${py(value)}`).join("L")}`;
  const percent = (value) => `${(100 * value).toFixed(0)} %`, count = (value) => Math.round(value).toLocaleString("en");

  function said(now) {
    const { arm, time } = state, late = onsets[arm] - onsets[0], step = `At step ${count(steps[time])}`;
    const first = now.ic >= FORMED
      ? `${step} the head has formed: labels attend to their items (${percent(now.ila1)}), the target to its item’s label (${percent(now.tila2)}), and ${percent(now.ic)} of the answers are right.`
      : now.ic >= (1 + 1 / n) / 2 ? `${step} the head is forming: ${percent(now.ic)} of the answers are right.`
      : now.cla >= 0.5 ? `${step} the answer is a label of the prompt in ${percent(now.cla)} of cases, and the right one in ${percent(now.ic)}; guessing one of the ${n} gives ${percent(1 / n)}.`
      : `${step} the network answers with any label: ${percent(now.cla)} of the answers are in the prompt, and ${percent(now.ic)} right.`;
    return arm ? `${first} With the ${arms[arm].name}${arm < 3 ? ` for ${count(hold)} steps` : ""} the onset comes ${count(Math.abs(late))} steps ${late < 0 ? "sooner" : "later"}.` : first;
  }

  function update() {
    const { arm, time } = state, one = arms[arm], at = (layer, query, key) =>
      attention(one, n, time, layer, query < target ? query : target + ITEM, key);
    const arcs = root.querySelectorAll(".arc"), now = Object.fromEntries(CURVES.map((name) => [name, curve(arm, name)[time]]));
    let drawn = 0;
    for (let query = 1; query <= target; query++) for (let key = 0; key < query; key++) arcs[drawn++].setAttribute("stroke-width", (THICK * at(0, query, key)).toFixed(1));
    for (let key = 0; key < target; key++) arcs[drawn++].setAttribute("stroke-width", (THICK * at(1, target, key)).toFixed(1));
    root.querySelectorAll(".maps svg").forEach((map, layer) => {
      const cells = map.querySelectorAll("rect");
      for (let query = 0, cell = 0; query <= target; query++) for (let key = 0; key <= query; key++) cells[cell++].setAttribute("fill-opacity", at(layer, query, key).toFixed(2));
    });
    for (const name of CURVES) {
      $("plot").querySelector(`.${name}`).setAttribute("d", line(curve(arm, name)));
      $(name).textContent = percent(now[name]);
    }
    const [from, to] = [onsets[0], onsets[arm]].map((step) => WIDTH * step / steps[last]), level = Number(py((1 + 1 / n) / 2));
    $("before").setAttribute("d", arm ? line(curve(0, "ic")) : "");
    $("grey").hidden = !arm;
    $("bracket").setAttribute("d", arm ? `M${from.toFixed(1)} ${level - 6}v12m0-6H${to.toFixed(1)}m0-6v12` : "");
    $("delay").setAttribute("x", ((from + to) / 2).toFixed(1));
    $("delay").setAttribute("y", level - 9);
    $("delay").textContent = arm ? `${to < from ? "−" : "+"}${count(Math.abs(onsets[arm] - onsets[0]))}` : "";
    const held = arm === 1 || arm === 2;
    $("held").setAttribute("width", held ? WIDTH * hold / steps[last] : 0);
    $("holding").textContent = held ? "frozen" : "";
    $("cursor").setAttribute("d", `M${px(time)} 0V${HEIGHT}`);
    $("step").textContent = count(steps[time]);
    $("time").value = time;
    $("time").setAttribute("aria-valuetext", `step ${count(steps[time])}`);
    for (const radio of radios) {
      radio.checked = Number(radio.value) === arm;
      radio.tabIndex = radio.checked ? 0 : -1;
    }
    $("said").textContent = said(now);
  }

  const radios = [...$("arms").querySelectorAll("input")];
  $("time").max = last;
  const moved = (time) => { state.time = Math.max(0, Math.min(last, time)); update(); };
  $("time").addEventListener("input", (event) => moved(Number(event.target.value)));
  $("time").addEventListener("change", keep);
  $("arms").addEventListener("change", (event) => { state.arm = Number(event.target.value); update(); keep(); });
  drags($("plot"), (x) => moved(Math.round(x * last / WIDTH)), keep);
  $("reset").addEventListener("click", () => { state = start(); update(); keep(); });
  copies($("link"), keep);
  addEventListener("hashchange", () => { if (address().place === "head") { state = recalled(); update(); } });
  state = recalled();
  wake(root);
  update();
}
