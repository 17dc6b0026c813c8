# What trimesh finds in a mesh file: python read.py FILE. Prints a line of JSON.
import json
import sys

import numpy as np
import trimesh

loaded = trimesh.load(sys.argv[1])
mesh = list(loaded.geometry.values())[0] if isinstance(loaded, trimesh.Scene) else loaded
found = {"faces": len(mesh.faces), "kind": mesh.visual.kind}
if mesh.visual.kind == "texture":
    # Colours in the middle of each face. trimesh counts v from below.
    material = mesh.visual.material
    image = getattr(material, "baseColorTexture", None) or material.image
    texels = np.asarray(image.convert("RGB"))
    height, width = texels.shape[:2]
    u, v = mesh.visual.uv[mesh.faces].mean(axis=1).T
    x = np.clip((u * width).astype(int), 0, width - 1)
    y = np.clip(((1 - v) * height).astype(int), 0, height - 1)
    places = mesh.vertices[mesh.faces].mean(axis=1)
    # The ball of the test is red where x is positive and blue where it is negative.
    away = np.abs(places[:, 0]) > 0.15
    red = texels[y, x, 0].astype(int) > texels[y, x, 2].astype(int)
    found["as_the_ball"] = float((red == (places[:, 0] > 0))[away].mean())
# Seams are vertices of a file, and no holes.
mesh.merge_vertices(merge_tex=True, merge_norm=True)
found["watertight"] = bool(mesh.is_watertight)
found["winding"] = bool(mesh.is_winding_consistent)
found["volume"] = float(mesh.volume)
print(json.dumps(found))
