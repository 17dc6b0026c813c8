// Runs in a page: loads files with the libraries. Each reader takes an address and the view and returns columns as flat
// arrays: `positions`; `scales` and `rotations` (w x y z), or `covariances` (xx xy xz yy yz zz); `colors` and
// `opacities`, 0 to 1; `sh`, red green blue of each coefficient; optionally a `picture`.

const C0 = 0.28209479177387814;
/** Babylon.js stores 16 bytes of a Gaussian's harmonics per texture. */
const TEXEL = 16;
/** Bytes per degree in three.js, and their stride. */
const BAND_BYTES = [[9, 12], [15, 16], [21, 24]];
/** Harmonics of Spark by degree: count of numbers, bits per number, count of words. */
const PACKED = { sh1: [9, 7, 2], sh2: [15, 8, 4], sh3: [21, 6, 4] };
/** Prefix of the names that GLTFLoader gives to attributes of KHR_gaussian_splatting. */
const KHR = 'khr_gaussian_splatting:';
const PICTURE_PX = 384;

const rows = (count, row) => Array.from({ length: count }, (_, i) => row(i)).flat();
const shares = bytes => Array.from(bytes, byte => byte / 255);

/** Rows of 32 bytes: position and size as floats, then colour, opacity and rotation w x y z as bytes. */
function columnsOfRows(buffer, textures, coefficients) {
  const [floats, bytes] = [new Float32Array(buffer), new Uint8Array(buffer)];
  const count = bytes.length / 32;
  const part = (from, to) => rows(count, i => Array.from(bytes.subarray(32 * i + from, 32 * i + to)));
  const floatPart = (from, to) => rows(count, i => Array.from(floats.subarray(8 * i + from, 8 * i + to)));
  const harmonic = (i, j) => textures[Math.floor(j / TEXEL)][i * TEXEL + j % TEXEL] / 127.5 - 1;
  return {
    positions: floatPart(0, 3),
    scales: floatPart(3, 6),
    colors: shares(part(24, 27)),
    opacities: shares(part(27, 28)),
    rotations: part(28, 32).map(byte => byte / 127.5 - 1),
    sh: textures ? rows(count, i => Array.from({ length: 3 * coefficients }, (_, j) => harmonic(i, j))) : [],
  };
}

/** Returns red, green and blue of the picture after it stopped changing: Gaussians are sorted in the background. */
async function drawn(engine, scene) {
  let last = '';
  for (let i = 0; i < 200; i++) {
    scene.render();
    const values = Array.from(await engine.readPixels(0, 0, PICTURE_PX, PICTURE_PX)).filter((_, j) => j % 4 !== 3);
    const text = values.join();
    // The picture is black until the shader and the order are ready.
    if (text === last && values.some(x => x > 0)) return values;
    last = text;
    await new Promise(done => { setTimeout(done, 200); });
  }
  throw new Error('the picture is blank or never rests');
}

/**
 * Babylon.js keeps the numbers of the file. It shows splat files with y mirrored, as its world is left-handed, and GLB
 * below a rotated root; pictures show whether both agree.
 */
async function babylon(url, view, spzLibraryUrl = new URL('/node_modules/@adobe/spz/dist/spz.js', url).href) {
  const [{ Engine }, { Scene }, { ImportMeshAsync }, { FreeCamera }, { Color4 }, { Vector3 }, fflate] = await Promise.all([
    import('@babylonjs/core/Engines/engine.js'),
    import('@babylonjs/core/scene.js'),
    import('@babylonjs/core/Loading/sceneLoader.js'),
    import('@babylonjs/core/Cameras/freeCamera.js'),
    import('@babylonjs/core/Maths/math.color.js'),
    import('@babylonjs/core/Maths/math.vector.js'),
    import('fflate'),
    import('@babylonjs/loaders/SPLAT/index.js'),
    import('@babylonjs/loaders/glTF/2.0/index.js'),
  ]);
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [PICTURE_PX, PICTURE_PX];
  const engine = new Engine(canvas, false);
  const scene = new Scene(engine);
  scene.clearColor = new Color4(0, 0, 0, 1);
  let columns;
  // Its glTF loader does not keep rows but passes them on.
  const onMeshLoaded = mesh => {
    if (!mesh.updateDataAsync) return;
    const update = mesh.updateDataAsync.bind(mesh);
    mesh.updateDataAsync = (data, textures, parts, degree) => {
      columns = columnsOfRows(data, textures, (degree + 1) ** 2 - 1);
      return update(data, textures, parts, degree);
    };
  };
  const pluginOptions = { splat: { keepInRam: true, fflate, spzLibraryUrl }, gltf: { onMeshLoaded } };
  const { meshes } = await ImportMeshAsync(url, scene, { pluginOptions });
  const mesh = meshes.find(it => it.getClassName() === 'GaussianSplattingMesh');
  if (!mesh) throw new Error(`not a mesh of Gaussians: ${meshes.map(it => it.getClassName())}`);
  columns ??= columnsOfRows(mesh.splatsData, mesh.shData, (mesh.maxShDegree + 1) ** 2 - 1);
  const [x, y, z] = view.center;
  const camera = new FreeCamera('camera', new Vector3(x, y, z - view.distance), scene);
  camera.setTarget(new Vector3(x, y, z));
  camera.maxZ = 10 * view.distance;
  return { ...columns, picture: await drawn(engine, scene) };
}

/** Returns the columns of a three.js geometry of Gaussians: covariances and bytes. */
function columnsOfGeometry(geometry) {
  const array = name => geometry.getAttribute(name)?.array;
  const count = geometry.getAttribute('position').count;
  const colors = shares(array('color'));
  const bands = BAND_BYTES.map(([used, stride], d) => ({ used, stride, words: array(`sphericalHarmonics${d + 1}`) }));
  const bytes = bands.filter(({ words }) => words).map(({ used, stride, words }) => {
    const all = new Uint8Array(words.buffer, words.byteOffset, 4 * words.length);
    return i => Array.from(all.subarray(i * stride, i * stride + used));
  });
  return {
    positions: Array.from(array('position')),
    covariances: Array.from(array('covariance')),
    colors: colors.filter((_, i) => i % 4 !== 3),
    opacities: colors.filter((_, i) => i % 4 === 3),
    sh: rows(count, i => bytes.flatMap(of => of(i))).map(byte => (byte - 128) / 128),
  };
}

async function threeSplats(url) {
  const name = { ply: 'GaussianSplatPLYLoader', splat: 'SPLATLoader', spz: 'SPZLoader' }[url.match(/\w+$/)[0]];
  const { [name]: Loader } = await import(`three/addons/loaders/${name}.js`);
  return columnsOfGeometry(await new Loader().loadAsync(url));
}

/** Loads a GLB and returns its only object with the property `is`; `prepare` may add an extension to the loader. */
async function gltf(url, is, prepare = () => {}) {
  const { GLTFLoader } = await import('three/addons/loaders/GLTFLoader.js');
  const loader = new GLTFLoader();
  prepare(loader);
  const { scene } = await loader.loadAsync(url);
  const found = [];
  scene.updateMatrixWorld();
  scene.traverse(it => it[is] && found.push(it));
  if (found.length !== 1) throw new Error(`${found.length} of ${is}`);
  return found[0];
}

async function threeGlb(url) {
  const { GLTFGaussianSplatLoaderExtension: Extension } = await import('three/addons/loaders/GLTFGaussianSplatLoaderExtension.js');
  const mesh = await gltf(url, 'isGaussianSplat', loader => loader.register(parser => new Extension(parser)));
  return columnsOfGeometry(mesh.splatGeometry);
}

/** Without the extension, the primitive is a point cloud with all attributes. */
async function threePoints(url) {
  const { geometry } = await gltf(url, 'isPoints');
  const { attributes } = geometry;
  const array = name => Array.from(attributes[name].array);
  const count = attributes.position.count;
  const rotations = array(`${KHR}rotation`);
  const pairs = [1, 2, 3].flatMap(d => Array.from({ length: 2 * d + 1 }, (_, k) => `${KHR}sh_degree_${d}_coef_${k}`));
  const sh = pairs.filter(name => attributes[name]).map(array);
  return {
    positions: array('position'),
    scales: array(`${KHR}scale`),
    rotations: rows(count, i => [3, 0, 1, 2].map(at => rotations[4 * i + at])),
    colors: array(`${KHR}sh_degree_0_coef_0`).map(x => 0.5 + C0 * x),
    opacities: array(`${KHR}opacity`),
    sh: rows(count, i => sh.flatMap(values => values.slice(3 * i, 3 * i + 3))),
  };
}

/** Unpacks signed numbers of `bits` bits from words, lowest bit first. */
function signed(words, count, bits) {
  const whole = words.reduce((sum, word, i) => sum | BigInt(word) << BigInt(32 * i), 0n);
  return Array.from({ length: count }, (_, i) => Number(BigInt.asIntN(bits, whole >> BigInt(bits * i))));
}

/**
 * Spark has two stores. The one of 32 bytes is more exact, but Spark 2.2.0 clamps its harmonics to the power of two
 * below the largest of a colour. Harmonics are read from the one of 16 bytes.
 */
async function spark(url) {
  const { ExtSplats, PackedSplats } = await import('@sparkjsdev/spark');
  const [exact, packed] = [new ExtSplats({ url }), new PackedSplats({ url })];
  await Promise.all([exact.initialized, packed.initialized]);
  const columns = { positions: [], scales: [], rotations: [], colors: [], opacities: [] };
  exact.forEachSplat((_, center, scales, { x, y, z, w }, opacity, { r, g, b }) => {
    columns.positions.push(...center.toArray());
    columns.scales.push(...scales.toArray());
    columns.rotations.push(w, x, y, z);
    columns.colors.push(r, g, b);
    columns.opacities.push(opacity);
  });
  const degrees = Object.entries(PACKED).filter(([name]) => packed.extra[name]);
  const sh = rows(packed.numSplats, i => degrees.flatMap(([name, [count, bits, words]]) => {
    const max = packed.splatEncoding?.[`${name}Max`] ?? 1;
    const found = signed(Array.from(packed.extra[name].subarray(i * words, (i + 1) * words)), count, bits);
    return found.map(x => x * max / (2 ** (bits - 1) - 1));
  }));
  return { ...columns, sh };
}

window.readers = {
  babylon,
  babylonAlone: (url, view) => babylon(url, view, null),
  threeSplats,
  threeGlb,
  threePoints,
  spark,
};
