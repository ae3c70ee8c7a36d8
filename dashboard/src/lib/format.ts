/** Numbers, durations and times as people read them. Pure; the tests are beside it. */

/** 0.4 s, 3 s, 4 min 05 s, 2 h 10 min, 3 d 4 h. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 0.95) return `${seconds < 0.05 ? "<0.1" : seconds.toFixed(1)} s`;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** 24 h as "1 d", 90 min as "1 h 30 min": a duration that a person has set. */
export function span(seconds: number): string {
  return duration(seconds).replace(/ 0+ \w+$/, "");
}

/** "just now", "12 s ago", "3 min ago", "2 h ago", "5 d ago". */
export function ago(iso: string, now: number): string {
  const seconds = (now - Date.parse(iso)) / 1_000;
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** 34 %: down, not to the nearest, because 100 % is said of what is done. */
export function percentDone(fraction: number): string {
  return `${Math.floor(fraction * 100 + 1e-9)} %`;
}

/** 1.5 GiB. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1_024 && unit < units.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

/** 12,345; 2.5 G; 0.001235; 1.2e-9; NaN and Infinity by name: enough digits to tell two runs apart. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if ((size !== 0 && size < 1e-4) || size >= 1e15) return scientific(value);
  if (size >= 1e12) return `${Number((value / 1e12).toPrecision(5))} T`;
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(5))} G`;
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return size >= 1_000
    ? value.toLocaleString("en-US", { maximumFractionDigits: 1 })
    : String(Number(value.toPrecision(5)));
}

/** 1.235e-7, as figures and ticks write what has no other form. */
export function scientific(value: number): string {
  if (value === 0) return "0";
  const [lead, exponent] = Number(value.toPrecision(4)).toExponential().split("e");
  return `${lead}e${Number(exponent)}`;
}

/** 2026-11-22 14:03:07 UTC+1, in the reader's time zone. */
export function moment(iso: string): string {
  const at = new Date(iso);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${timeOfDay(at)} ${zone(-at.getTimezoneOffset())}`;
}

/** 14:03:07, in the reader's time zone. */
export function timeOfDay(at: Date): string {
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** UTC, UTC+1, UTC-3:30. */
export function zone(offsetMinutes: number): string {
  if (offsetMinutes === 0) return "UTC";
  const [size, sign] = [Math.abs(offsetMinutes), offsetMinutes < 0 ? "-" : "+"];
  const minutes = size % 60 === 0 ? "" : `:${two(size % 60)}`;
  return `UTC${sign}${Math.floor(size / 60)}${minutes}`;
}

function two(part: number): string {
  return String(part).padStart(2, "0");
}
