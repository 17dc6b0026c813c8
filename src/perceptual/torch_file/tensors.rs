//! Which tensors a pickle of `PyTorch` describes, and where each finds its values.

use std::collections::BTreeMap;

use super::pickle::{Object, Pickle, PickleValue, ValueId};

/// A parameter is a tensor in a wrapper; none is wrapped more often than this.
const WRAPPERS: usize = 4;

/// Values that lie one after another in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorStorage {
    /// Name in the file.
    pub(super) key: String,
    /// What they are: `FloatStorage`.
    pub(super) kind: String,
    /// Place of the first, counted in values: a storage may be a part of another.
    pub(super) offset: u64,
}

/// A tensor as a view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredTensor {
    pub(super) storage: TensorStorage,
    /// Place of its first value in the storage.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    /// How many values each axis is apart.
    pub(super) strides: Vec<u64>,
}

/// The tensors of a dictionary of names and tensors; what else it holds is left alone.
pub(super) fn tensors(pickle: &Pickle) -> Result<BTreeMap<String, StoredTensor>, String> {
    let entries = pickle
        .entries(pickle.root())
        .ok_or("it holds no dictionary of tensors, as `state_dict()` gives it")?;
    let named = entries.into_iter().filter_map(|[name, value]| {
        Some((pickle.text(name)?.to_owned(), tensor(pickle, value, WRAPPERS)?))
    });
    Ok(named.collect())
}

/// All storages that a pickle names, by their keys.
pub(super) fn storages(pickle: &Pickle) -> BTreeMap<String, TensorStorage> {
    let found = pickle.values().iter().filter_map(|value| match value {
        PickleValue::External(id) => storage(pickle, *id),
        _ => None,
    });
    found.map(|storage| (storage.key.clone(), storage)).collect()
}

/// `('storage', torch.FloatStorage, key, device, length)`, and at its end, in older files, the part of
/// the storage that is meant: `(key, offset, length)`.
fn storage(pickle: &Pickle, id: ValueId) -> Option<TensorStorage> {
    let parts = pickle.list(id)?;
    let [mark, kind, key, ..] = *parts else { return None };
    if pickle.text(mark)? != "storage" {
        return None;
    }
    let part = parts.get(5).and_then(|&part| pickle.list(part));
    let offset = part.and_then(|part| pickle.count(*part.get(1)?)).unwrap_or(0);
    let kind = pickle.name(kind)?.trim_start_matches("torch.").to_owned();
    Some(TensorStorage { key: pickle.text(key)?.to_owned(), kind, offset })
}

fn tensor(pickle: &Pickle, id: ValueId, wrappers: usize) -> Option<StoredTensor> {
    let PickleValue::Object(Object { maker, arguments, state, .. }) = pickle.value(id) else {
        return None;
    };
    let state = state.and_then(|state| pickle.list(state)).unwrap_or_default();
    let arguments = pickle.list(*arguments)?;
    let inner = |id: ValueId| tensor(pickle, id, wrappers.checked_sub(1)?);
    match pickle.name(*maker)? {
        "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2" => {
            view(pickle, arguments)
        }
        "torch._utils._rebuild_parameter" => inner(*arguments.first()?),
        "torch.nn.parameter.Parameter" | "torch.autograd.variable.Variable" => match state {
            // Before the second version, all that it consists of was set afterwards.
            [data, _, _, _, _] => inner(*data),
            _ => inner(*arguments.first()?),
        },
        // So were the first tensors.
        _ => view(pickle, state),
    }
}

/// `(storage, offset, shape, strides, ...)`
fn view(pickle: &Pickle, parts: &[ValueId]) -> Option<StoredTensor> {
    let [external, offset, shape, strides, ..] = *parts else { return None };
    let PickleValue::External(id) = *pickle.value(external) else { return None };
    Some(StoredTensor {
        storage: storage(pickle, id)?,
        offset: pickle.count(offset)?,
        shape: counts(pickle, shape)?,
        strides: counts(pickle, strides)?,
    })
}

/// The numbers of a tuple, or of a `torch.Size` of one.
fn counts(pickle: &Pickle, id: ValueId) -> Option<Vec<u64>> {
    let id = match pickle.value(id) {
        PickleValue::Object(size) if pickle.name(size.maker)? == "torch.Size" => {
            *pickle.list(size.arguments)?.first()?
        }
        _ => id,
    };
    pickle.list(id)?.iter().map(|&id| pickle.count(id)).collect()
}
