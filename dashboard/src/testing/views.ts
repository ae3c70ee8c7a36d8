/** Series as the service answers them, for tests: `places` of them from a step on, whose values are their steps. */
export function view(name: string, places: number, count = places, from = 0) {
  const column = Array.from({ length: places }, (_, index) => from + index);
  return { name, unit: "", attempt: 1, count, step: column, time: column, value: column, min: column, max: column };
}
