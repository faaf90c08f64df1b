// What is read off the recorded attention of one network. All functions are pure.

export const CURVES = ["ic", "cla", "tla2", "ila1", "tila2"]; // data.py has the same

/** @typedef {{ maps: Uint8Array, curves: Float32Array }} Arm maps (R, 2, 3N, 2N + 1) in 255ths, curves (5, R) */

/**
 * Attention of a row to a token; rows are the 2N tokens of the context, then the target where it is like item 0, .., N - 1.
 *
 * @param {Arm} arm
 * @param {number} n
 * @param {number} time
 * @param {number} layer
 * @param {number} row
 * @param {number} key
 */
export function attention(arm, n, time, layer, row, key) {
  return arm.maps[((2 * time + layer) * 3 * n + row) * (2 * n + 1) + key] / 255;
}

/** data.measures at one time. @param {Arm} arm @param {ArrayLike<number>} share @param {number} time */
export function measures(arm, share, time) {
  const n = share.length, found = { ila1: 0, tla2: 0, tila2: 0 };
  for (let item = 0; item < n; item++) {
    found.ila1 += attention(arm, n, time, 0, 2 * item + 1, 2 * item) / n;
    for (let label = 0; label < n; label++) {
      const part = share[item] * attention(arm, n, time, 1, 2 * n + item, 2 * label + 1);
      found.tla2 += part;
      if (label === item) found.tila2 += part;
    }
  }
  return found;
}

/**
 * Largest difference between measures of the maps and the recorded curves, as a share of what rounding allows: data.bound.
 *
 * @param {Arm[]} arms
 * @param {ArrayLike<number>} share
 * @param {number} half
 * @param {number} float
 */
export function worst(arms, share, half, float) {
  let found = 0;
  for (const arm of arms) {
    const times = arm.curves.length / CURVES.length;
    for (let time = 0; time < times; time++) {
      for (const [name, value] of Object.entries(measures(arm, share, time))) {
        const off = Math.abs(value - arm.curves[CURVES.indexOf(name) * times + time]);
        const ratio = off / ((name === "tla2" ? share.length : 1) * half + float);
        if (!(ratio <= found)) found = Number.isNaN(ratio) ? Infinity : ratio;
      }
    }
  }
  return found;
}

/** Step at which a curve first reaches a level, by linear interpolation; infinite if never: experiments.onsets.crossing. @param {ArrayLike<number>} curve @param {number[]} steps @param {number} level */
export function crossing(curve, steps, level) {
  for (let at = 0; at < steps.length; at++) {
    if (curve[at] < level) continue;
    if (!at) return steps[0];
    const rise = curve[at] - curve[at - 1];
    return steps[at - 1] + (level - curve[at - 1]) / rise * (steps[at] - steps[at - 1]);
  }
  return Infinity;
}
