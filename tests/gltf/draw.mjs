// Draws a GLB by three.js in headless Chromium: node draw.mjs MESH.glb CAMERAS.json FOLDER
//
// Writes FOLDER/N.png for the N-th camera. Runs in a folder with the packages `three` and
// `puppeteer-core`; CHROMIUM names the browser where it is not /usr/bin/chromium.
import fs from 'fs';
import http from 'http';
import path from 'path';
import {createRequire} from 'module';

const puppeteer = createRequire(process.cwd() + '/')('puppeteer-core');
const [mesh, cameras, folder] = process.argv.slice(2);
const here = path.dirname(new URL(import.meta.url).pathname);
const types = {'.html': 'text/html', '.js': 'text/javascript'};

// Modules are not loaded from files.
const server = http.createServer((request, response) => {
  const name = request.url.split('?')[0];
  const file = name === '/mesh.glb' ? mesh : name === '/page.html' ? path.join(here, 'page.html') : process.cwd() + name;
  fs.readFile(file, (error, bytes) => {
    response.writeHead(error ? 404 : 200, {'Content-Type': types[path.extname(name)] || 'application/octet-stream'});
    response.end(bytes);
  });
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  protocolTimeout: 300000,
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--ignore-gpu-blocklist'],
});
let failed = false;
for (const [number, camera] of JSON.parse(fs.readFileSync(cameras)).entries()) {
  const page = await browser.newPage();
  const query = encodeURIComponent(JSON.stringify(camera));
  await page.goto(`http://127.0.0.1:${server.address().port}/page.html?camera=${query}`, {timeout: 200000});
  await page.waitForFunction('window.result', {timeout: 200000});
  const result = await page.evaluate('window.result');
  if (result.error) {
    console.error(result.error);
    failed = true;
  } else {
    console.log(JSON.stringify(result.turn));
    fs.writeFileSync(path.join(folder, `${number}.png`), Buffer.from(result.picture.split(',')[1], 'base64'));
  }
  await page.close();
}
await browser.close();
server.close();
process.exitCode = failed ? 1 : 0;
