// Training of the layer of ../layer/model.js (D = 2) from a random start. Weights are W_q, W_k, W_v, W_p, each 3 x 3 and
// row by row, one after the other: 36 numbers. Each function names the one of Python that it equals.

const E = 3, SIZE = 36, VARIANCE = 1 / 3, KURTOSIS = 1.8; // of inputs U(-1, 1)
const BATCH = 512, INIT = 0.002, CLIP = 1e-3, B1 = 0.9, B2 = 0.98, EPS = 1e-8; // as layer/training.py
export const STEPS = 3000; // of a training
export const EVERY = 50; // steps between measurements

/** @typedef {{ a: Float64Array | Float32Array, b: Float64Array | Float32Array }} Folded */
/** @typedef {{ n: number, x: ArrayLike<number>, y: ArrayLike<number>, query: ArrayLike<number>, target: ArrayLike<number> }} Tasks
 *   inputs (tasks, n, 2) and labels (tasks, n), the query (tasks, 2) and its label (tasks) */
/** @typedef {ReturnType<typeof fresh>} Network */
/** @typedef {(count: number) => Float64Array} Random */

/** A = W_q W_k^T and B = W_v W_p: models.folded_weights. @param {Float64Array} params */
export function folded(params) {
  const a = new Float64Array(9), b = new Float64Array(9);
  for (let i = 0; i < E; i++) for (let j = 0; j < E; j++) for (let k = 0; k < E; k++) {
    a[i * E + j] += params[i * E + k] * params[9 + j * E + k];
    b[i * E + j] += params[18 + i * E + k] * params[27 + k * E + j];
  }
  return { a, b };
}

/**
 * Gradient of half the mean squared error over tasks: jax.grad of training.plans.squared_error.
 *
 * @param {Float64Array} params
 * @param {Tasks} tasks
 */
export function gradient(params, { n, x, y, query, target }) {
  const { a, b } = folded(params), ga = new Float64Array(9), gb = new Float64Array(9), count = target.length;
  for (let t = 0; t < count; t++) {
    let xx = 0, xy = 0, yy = 0, xl = 0, yl = 0, ll = 0; // sums over examples of the products of token channels
    for (let i = t * n; i < (t + 1) * n; i++) {
      const p = x[2 * i], q = x[2 * i + 1], l = y[i];
      xx += p * p; xy += p * q; yy += q * q; xl += p * l; yl += q * l; ll += l * l;
    }
    const u = query[2 * t], v = query[2 * t + 1];
    const s0 = u * a[0] + v * a[3], s1 = u * a[1] + v * a[4], s2 = u * a[2] + v * a[5]; // the query's scores of channels
    const c0 = xx * b[2] + xy * b[5] + xl * b[8], c1 = xy * b[2] + yy * b[5] + yl * b[8], c2 = xl * b[2] + yl * b[5] + ll * b[8];
    const r = (s0 * c0 + s1 * c1 + s2 * c2 + target[t]) / count; // minus the error: the prediction has a minus
    ga[0] += r * u * c0; ga[1] += r * u * c1; ga[2] += r * u * c2;
    ga[3] += r * v * c0; ga[4] += r * v * c1; ga[5] += r * v * c2;
    gb[2] += r * (xx * s0 + xy * s1 + xl * s2); gb[5] += r * (xy * s0 + yy * s1 + yl * s2); gb[8] += r * (xl * s0 + yl * s1 + ll * s2);
  }
  const g = new Float64Array(SIZE);
  for (let i = 0; i < E; i++) for (let j = 0; j < E; j++) for (let k = 0; k < E; k++) {
    g[i * E + k] += ga[i * E + j] * params[9 + j * E + k];
    g[9 + j * E + k] += ga[i * E + j] * params[i * E + k];
    g[18 + i * E + k] += gb[i * E + j] * params[27 + k * E + j];
    g[27 + k * E + j] += gb[i * E + j] * params[18 + i * E + k];
  }
  return g;
}

/** A network before its first step, with Adam's two averages. @param {Float64Array} params */
export const fresh = (params) => ({ params, first: new Float64Array(SIZE), second: new Float64Array(SIZE), steps: 0 });

/**
 * One step of Adam after a clip of the gradient's norm, in place: experiments.von_oswald.common.optimizer.
 *
 * @param {Network} network
 * @param {Float64Array} g
 * @param {number} rate
 */
export function adam(network, g, rate) {
  const { params, first, second } = network, t = ++network.steps;
  let norm = 0;
  for (const value of g) norm += value * value;
  const clip = Math.min(1, CLIP / Math.sqrt(norm)), c1 = 1 - B1 ** t, c2 = 1 - B2 ** t;
  for (let i = 0; i < SIZE; i++) {
    const value = clip * g[i];
    first[i] += (1 - B1) * (value - first[i]);
    second[i] += (1 - B2) * (value * value - second[i]);
    params[i] -= rate * first[i] / c1 / (Math.sqrt(second[i] / c2) + EPS);
  }
}

/**
 * A source of uniform numbers in [0, 1), so many at a time, of two whole numbers as seed: the generator sfc32.
 *
 * @param {number} seed
 * @param {number} stream
 * @returns {Random}
 */
export function uniforms(seed, stream) {
  let state = [seed | 0, stream | 0, 0x9e3779b9 | 0, 1];
  const random = (/** @type {number} */ count) => {
    const values = new Float64Array(count);
    let [a, b, c, d] = state;
    for (let i = 0; i < count; i++) {
      const sum = (a + b + d) | 0;
      d = (d + 1) | 0; a = b ^ (b >>> 9); b = (c + (c << 3)) | 0; c = (((c << 21) | (c >>> 11)) + sum) | 0;
      values[i] = (sum >>> 0) / 4294967296;
    }
    state = [a, b, c, d];
    return values;
  };
  random(20); // until seeds that are alike have parted
  return random;
}

/** Independent normal numbers, an even count of them. @param {Random} random @param {number} count */
export function normals(random, count) {
  const values = random(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - values[i])), angle = 2 * Math.PI * values[i + 1];
    values[i] = radius * Math.cos(angle);
    values[i + 1] = radius * Math.sin(angle);
  }
  return values;
}

/** Fresh tasks: prompts.linear_regression with inputs U(-1, 1). @param {Random} random @param {number} n @param {number} count */
export function drawn(random, n, count = BATCH) {
  const w = normals(random, 2 * count), x = random(2 * n * count), query = random(2 * count);
  const y = new Float64Array(n * count), target = new Float64Array(count);
  for (let t = 0; t < count; t++) {
    const u = w[2 * t], v = w[2 * t + 1];
    for (let i = t * n; i < (t + 1) * n; i++) y[i] = u * (x[2 * i] = 2 * x[2 * i] - 1) + v * (x[2 * i + 1] = 2 * x[2 * i + 1] - 1);
    target[t] = u * (query[2 * t] = 2 * query[2 * t] - 1) + v * (query[2 * t + 1] = 2 * query[2 * t + 1] - 1);
  }
  return { n, x, y, query, target };
}

/** Random weights, normal and cut off at two deviations: the start of models.LinearSelfAttention. @param {Random} random */
export function begun(random) {
  const deviation = Math.sqrt(INIT / E) / 0.8796256610342398; // of the normal that is cut off
  return fresh(normals(random, 4 * SIZE).filter((value) => Math.abs(value) <= 2).slice(0, SIZE).map((value) => deviation * value));
}

/**
 * Trains a network for so many steps.
 *
 * @param {Network} network
 * @param {Random} random
 * @param {number} n
 * @param {number} rate
 * @param {number} steps
 */
export function train(network, random, n, rate, steps) {
  for (let k = 0; k < steps; k++) adam(network, gradient(network.params, drawn(random, n)), rate);
}

/** Loss of a layer over all tasks, exactly: weights.data.population_loss. @param {Folded} weights @param {number} n */
export function populationLoss({ a, b }, n) {
  const p = [a[2], a[5]], q = [b[2], b[5]], label = b[8];
  const trace = label * (a[0] + a[4]) + p[0] * q[0] + p[1] * q[1];
  let size = 0;
  for (const i of [0, 1]) for (const j of [0, 1]) size += (label * a[i * E + j] + p[i] * q[j]) ** 2;
  const g = [a[0] ** 2 + a[3] ** 2, a[0] * a[1] + a[3] * a[4], a[1] ** 2 + a[4] ** 2]; // P^T P
  const along = g[0] * q[0] ** 2 + 2 * g[1] * q[0] * q[1] + g[2] * q[1] ** 2;
  const squares = (n * (n + 1)) * along + n * ((g[0] + g[2]) * (q[0] ** 2 + q[1] ** 2) + (KURTOSIS - 3) * (g[0] * q[0] ** 2 + g[2] * q[1] ** 2));
  const cross = (p[0] * a[0] + p[1] * a[3]) * q[0] + (p[0] * a[1] + p[1] * a[4]) * q[1];
  const fourth = 2 * n * (2 * n + KURTOSIS - 1), second = n * (n + KURTOSIS);
  const odd = 2 + 2 * n * VARIANCE * trace + VARIANCE ** 2 * second * size;
  const even = squares + 2 * label * n * (2 * n + KURTOSIS - 1) * cross + label ** 2 * (p[0] ** 2 + p[1] ** 2) * (fourth + 4 * second);
  return VARIANCE / 2 * (odd + VARIANCE ** 2 * even);
}

/** Loss with no direction learned, with one and with both: of zero, of the best A of rank one, of the best step. @param {number} n */
export function levels(n) {
  return [0, 1, 2].map((directions) => VARIANCE * (1 - directions / 2 * n / (n + KURTOSIS)));
}

/** Learning rate of the best step: theory.one_step_optimum. @param {number} n */
export const bestRate = (n) => n / (n + KURTOSIS) / VARIANCE;

/** Learning rate of the step that a layer takes: experiments.von_oswald.common.strengths, times N. @param {Folded} weights @param {number} n */
export const rateOf = ({ a, b }, n) => -n * b[8] * (a[0] + a[4]) / 2;

/** How much of a direction's part of the answer the layer takes at eigenvalue 1, along its fastest and its slowest direction: fallback.pace. @param {Folded} weights @param {number} n */
export function pace({ a, b }, n) {
  const taken = (/** @type {number} */ i, /** @type {number} */ j) => -n * (b[8] * a[i * E + j] + a[i * E + 2] * b[j * E + 2]);
  const half = (taken(0, 0) + taken(1, 1)) / 2, gap = Math.hypot((taken(0, 0) - taken(1, 1)) / 2, (taken(0, 1) + taken(1, 0)) / 2);
  return [half + gap, half - gap];
}

/** The same layer with A and B of equal size (A and B may be scaled by c and 1 / c) and a positive diagonal of A. @param {Folded} weights */
export function balanced({ a, b }) {
  const size = (/** @type {ArrayLike<number>} */ values, /** @type {number[]} */ places) => Math.hypot(...places.map((i) => values[i]));
  const c = Math.sqrt(size(b, [2, 5, 8]) / size(a, [0, 1, 2, 3, 4, 5])) * (a[0] + a[4] < 0 ? -1 : 1);
  return { a: a.map((value) => c * value), b: b.map((value) => value / c) };
}

/**
 * Largest difference of one gradient (of its norm) and of the weights after each step of Adam from exported ones.
 *
 * @param {{ start: ArrayLike<number>, tasks: Tasks[], slope: Float32Array, after: Float32Array, rate: number }} exported
 */
export function largestDifference({ start, tasks, slope, after, rate }) {
  const network = fresh(Float64Array.from(start)), size = Math.hypot(...slope);
  const off = (/** @type {Float64Array} */ told, /** @type {Float32Array} */ known, /** @type {number} */ unit) => Math.max(...told.map((value, i) => Math.abs(value - known[i]) / unit));
  const found = [off(gradient(network.params, tasks[0]), slope, size)];
  tasks.forEach((batch, k) => {
    adam(network, gradient(network.params, batch), rate);
    found.push(off(network.params, after.subarray(SIZE * k, SIZE * (k + 1)), 1));
  });
  return found.some(Number.isNaN) ? Infinity : Math.max(...found);
}
