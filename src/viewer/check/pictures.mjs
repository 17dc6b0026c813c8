// Pictures compared, and colours as people see them.
import { PNG } from 'pngjs';

const rgb = png => png.data.filter((_, i) => i % 4 !== 3);

/** PSNR of two PNGs of one size, dB. */
export function psnr(a, b) {
  const [first, second] = [a, b].map(bytes => PNG.sync.read(bytes));
  if (first.width !== second.width || first.height !== second.height) {
    throw new Error(`${first.width}x${first.height} against ${second.width}x${second.height}`);
  }
  const [x, y] = [rgb(first), rgb(second)];
  const squares = x.reduce((sum, value, i) => sum + (value - y[i]) ** 2, 0);
  return 10 * Math.log10(255 ** 2 * x.length / squares);
}

/** Standard deviation of all values of a PNG, 0 to 255: 0 is a blank picture. */
export function spread(bytes) {
  const values = rgb(PNG.sync.read(bytes));
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
  return Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length);
}

/** Relative luminance of a colour (WCAG 2). */
function luminance(color) {
  const [r, g, b] = color.match(/[\d.]+/g).map(x => {
    const share = x / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast of two colours like `rgb(1, 2, 3)`, 1 to 21. */
export function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}
