// What is read off the recorded attention of one network, and the network itself. All functions are pure.

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
 * Largest difference between measures of the maps and the recorded curves, as a share of what rounding allows: data.bound;
 * NaN where a number is none.
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
        found = Math.max(found, off / ((name === "tla2" ? share.length : 1) * half + float));
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

/** @typedef {Float64Array[]} Matrix its rows */

/** Matrices of these shapes, one after another, from the bytes of float16 numbers, little endian. @param {Uint8Array} bytes @param {number[][]} shapes @returns {Matrix[]} */
export function matrices(bytes, shapes) {
  const every = Float64Array.from(new Uint16Array(bytes.buffer), (h) => {
    const power = h >> 10 & 31, digits = h & 1023;
    return (h >> 15 ? -1 : 1) * (digits + (power && 1024)) * 2 ** ((power || 1) - 25);
  });
  let from = 0;
  return shapes.map(([rows, columns]) => Array.from({ length: rows }, () => every.subarray(from, from += columns)));
}

/** A vector times a matrix, which may have fewer rows: what they would meet is zero. @param {Float64Array} vector @param {Matrix} matrix */
function times(vector, matrix) {
  const sums = matrix[0].map(() => 0);
  matrix.forEach((row, r) => row.forEach((value, c) => { sums[c] += vector[r] * value; }));
  return sums;
}

/** jax.nn.softmax of scores far below 700. @param {Float64Array} scores */
export function softmax(scores) {
  const shares = scores.map(Math.exp), sum = shares.reduce((one, other) => one + other);
  return shares.map((share) => share / sum);
}

/**
 * The network of live.folded on a sequence of numbers of items and labels, which ends with an item: live.of_reader.
 *
 * @param {Matrix[]} on live.MATRICES
 * @param {number[]} sequence
 * @returns {{ attention: Float64Array[][], logits: Float64Array }} by layer, query and key; by label
 */
export function answer([items, labels, [biases], readOut, ...layers], sequence) {
  let rows = sequence.map((which, at) => {
    const row = new Float64Array(layers[2].length);
    row[at] = 1;
    row.set((at % 2 ? labels : items)[which], sequence.length);
    return row;
  });
  const attention = [0, 2].map((k) => {
    const heads = rows.map((row) => times(row, layers[k + 1]));
    const pattern = rows.map((row, query) => {
      const asked = times(row, layers[k]);
      return softmax(new Float64Array(query + 1).map((_, key) => asked.reduce((sum, value, c) => sum + value * rows[key][c], 0)));
    });
    rows = rows.map((row, query) => {
      const head = times(pattern[query], heads.slice(0, query + 1));
      return row.map((value, c) => value + head[c]);
    });
    return pattern;
  });
  const hidden = layers.slice(4).reduce((row, layer, k) => times(row, layer).map((value) => Math.max(0, value + biases[k])), rows.at(-1));
  return { attention, logits: times(hidden, readOut) };
}

/** Largest difference from these logits, over the largest of them; NaN where a number is none. @param {Matrix[]} on @param {number[][]} sequences @param {Float32Array} logits by sequence and label */
export function difference(on, sequences, logits) {
  const here = sequences.flatMap((one) => [...answer(on, one).logits]);
  return Math.max(...here.map((value, k) => Math.abs(value - logits[k]))) / Math.max(...logits.map(Math.abs));
}
