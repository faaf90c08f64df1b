import { address, number, remember } from "../../../../icl_lab/pages/shared/address.js";
import { opened, wake } from "../../../../icl_lab/pages/shared/figure.js";
import { drags, element, slider } from "../../../../icl_lab/pages/shared/svg.js";

const HEIGHT = 110; // of the plot of losses; fallback.py has the same

/** Takes the static figure over: one cursor over the training of all networks. */
export function mount(root) {
  const { data, $ } = opened(root);
  const { networks, kinds } = data, last = networks[0].times.length - 1, members = networks[0].names.length;
  const svg = $("plot"), drawings = [...svg.querySelectorAll(".drawing")], rows = [...root.querySelectorAll("tbody tr")];
  const places = drawings.map((drawing) => drawing.querySelector(".letters").getAttribute("x").split(" ").map(Number));
  const start = () => ({ network: data.start[0], time: data.start[1] });
  let state = start();

  function recalled() {
    const { place, state: said } = address(), found = start();
    if (place !== "names") return found;
    const network = networks.findIndex(({ key }) => key === said.get("network"));
    return { network: network < 0 ? found.network : network, time: Math.round(number(said, "time", 0, last, found.time)) };
  }
  const keep = () => remember("names", { network: networks[state.network].key, time: String(state.time) });
  const count = (value) => value.toLocaleString("en");

  /** Letters at an answer and how many members have each: fallback.counted. */
  function counted(network, time) {
    const found = new Map();
    for (const member of network.names) found.set(member[time], (found.get(member[time]) ?? 0) + 1);
    return [...found].sort((a, b) => b[1] - a[1]);
  }

  const { line, place } = slider(svg, svg.viewBox.baseVal.height - 26, {
    "aria-label": "Answer over training; up and down choose the network", "aria-valuemax": last,
  }, (key) => {
    const { network, time } = state;
    const to = {
      ArrowLeft: [network, time - 1], ArrowRight: [network, time + 1], Home: [network, 0], End: [network, last],
      ArrowUp: [network - 1, time], ArrowDown: [network + 1, time],
    }[key];
    return to && (() => { moved(...to); keep(); });
  });
  element(line, "path", { class: "cursor", d: `M0 0V${HEIGHT}` });
  $("cursor").remove(); // that of the static figure

  function update() {
    const { network, time } = state, one = networks[network], x = places[network][time];
    drawings.forEach((drawing, k) => drawing.toggleAttribute("hidden", k !== network));
    $("band").setAttribute("x", x - 7);
    place(x, time, `${one.name}, step ${count(one.times[time])}`);
    rows.forEach((row, k) => {
      row.classList.toggle("chosen", k === network);
      row.querySelector("button").setAttribute("aria-pressed", k === network);
      row.cells[1].textContent = count(networks[k].times[time]);
      row.cells[2].replaceChildren(...counted(networks[k], time).map(([letter, many]) => {
        const [name, , colour] = kinds[letter], chip = document.createElement("span"), sign = document.createElement("b");
        chip.className = `chip ${colour}`;
        sign.textContent = letter;
        chip.append(sign, ` ${name} × ${many}`);
        return chip;
      }));
      row.cells[3].textContent = `${networks[k].fallen[time]} %`;
    });
    const [[first, most], ...others] = counted(one, time);
    $("said").textContent = `At step ${count(one.times[time])}, ${most} of ${members} ${one.plural} are ${kinds[first][1]}${others.map(([letter, many]) => `, ${many} ${kinds[letter][1]}`).join("")}; ${one.fallen[time]} % of the fall of their mean loss is done.`;
  }

  const moved = (network, time) => {
    state = { network: (network + networks.length) % networks.length, time: Math.max(0, Math.min(last, time)) };
    update();
  };
  rows.forEach((row, k) => {
    const button = document.createElement("button"), th = row.cells[0];
    Object.assign(button, { type: "button", tabIndex: -1, textContent: th.textContent }); // by keys the cursor chooses
    button.addEventListener("click", () => { moved(k, state.time); keep(); });
    th.replaceChildren(button);
  });
  drags(svg, (x) => {
    const off = places[state.network].map((place) => Math.abs(place - x));
    moved(state.network, off.indexOf(Math.min(...off)));
  }, keep);
  addEventListener("hashchange", () => { if (address().place === "names") { state = recalled(); update(); } });
  addEventListener("resize", update);
  state = recalled();
  wake(root);
  update();
}
