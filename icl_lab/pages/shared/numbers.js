/** A number as a power of ten of one digit: 3 × 10⁻⁷. */
export function scientific(value) {
  const [digit, power] = value.toExponential(0).split("e");
  return `${digit} × 10${[...power.replace("+", "")].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
}
