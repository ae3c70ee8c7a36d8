/**
 * Colours as people see them: contrast, difference, and the three kinds of colour blindness.
 *
 * Simulated after Machado, Oliveira and Fernandes (2009) at full severity, in linear sRGB. The
 * difference is that of CIE 1976, the distance in CIELAB.
 */
type Triple = readonly [number, number, number];
type Matrix = readonly [Triple, Triple, Triple];

export const SIGHTS: Readonly<Record<string, Matrix>> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const TO_XYZ: Matrix = [
  [0.4124564, 0.3575761, 0.1804375],
  [0.2126729, 0.7151522, 0.072175],
  [0.0193339, 0.119192, 0.9503041],
];
const WHITE: Triple = [0.95047, 1, 1.08883];

/** Distance of two colours such as `#2f6bdb` as seen with this sight. */
export function difference(one: string, other: string, sight: Matrix): number {
  const [a, b] = [one, other].map((colour) => lab(times(sight, linear(colour)).map(within) as unknown as Triple));
  return Math.hypot(...(a as Triple).map((part, place) => part - ((b as Triple)[place] as number)));
}

/** Ratio of WCAG, 1 to 21. */
export function contrast(one: string, other: string): number {
  const [dark, light] = [one, other].map((colour) => times(TO_XYZ, linear(colour))[1]).sort((a, b) => a - b);
  return ((light as number) + 0.05) / ((dark as number) + 0.05);
}

function linear(colour: string): Triple {
  return [1, 3, 5].map((place) => {
    const part = Number.parseInt(colour.slice(place, place + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as unknown as Triple;
}

function lab(rgb: Triple): Triple {
  const [x, y, z] = times(TO_XYZ, rgb).map((part, place) => {
    const share = part / (WHITE[place] as number);
    return share > 0.008856 ? Math.cbrt(share) : 7.787 * share + 16 / 116;
  }) as unknown as Triple;
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function times(matrix: Matrix, [a, b, c]: Triple): Triple {
  return matrix.map(([x, y, z]) => x * a + y * b + z * c) as unknown as Triple;
}

function within(part: number): number {
  return Math.min(1, Math.max(0, part));
}
