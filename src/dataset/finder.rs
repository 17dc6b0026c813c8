//! Finds files by names that other programs and systems wrote. A name may have backslashes, a foreign absolute path,
//! or another extension, case or Unicode form than the file.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use unicode_normalization::UnicodeNormalization;

use super::camera::stem;
use super::shot::{EXTENSIONS, UNREAD_EXTENSIONS};
use crate::files::entries;

/// Deepest folder below the finder's folder that is searched.
const MAX_DEPTH: usize = 16;

/// A file name of another system, split at either separator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForeignName {
    parts: Vec<String>,
}

impl ForeignName {
    /// Splits a name; drops drives, `.` and `..`.
    pub(super) fn new(name: &str) -> Self {
        let mut parts: Vec<String> = Vec::new();
        for part in name.split(['/', '\\']) {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                _ if part.ends_with(':') => parts.clear(),
                _ => parts.push(part.to_owned()),
            }
        }
        Self { parts }
    }

    /// Returns the name for comparisons: without case, Unicode form and a photograph's extension.
    pub(super) fn folded(&self) -> String {
        let name = self.after_parts(0);
        fold(if is_photograph(&name) { stem(&name) } else { &name })
    }

    /// Joins the parts with `/`, without the first `dropped`.
    pub(super) fn after_parts(&self, dropped: usize) -> String {
        self.parts.get(dropped..).unwrap_or_default().join("/")
    }
}

/// Kind of match of a file, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Exact,
    /// The path up to case, Unicode form or extension.
    SamePath,
    /// The end of the path, or the file name alone.
    Elsewhere,
}

#[derive(Clone, Debug)]
struct Found {
    path: PathBuf,
    by: Match,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The photograph of this name.
    Photograph,
    /// The mask of the photograph of this name: `a.jpg.png`, else `a.png`.
    Mask,
}

/// Extent of the search for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The end of the path; a folder and the file name must match.
    Paths,
    /// Anywhere in the folder, if exactly one file matches one name.
    Anywhere,
}

/// The files that were found for a list of names.
#[derive(Debug)]
pub(super) struct FoundFiles {
    /// Files in the order of the names.
    pub(super) paths: Vec<Option<PathBuf>>,
    /// Number of files in other places than the names say.
    pub(super) elsewhere: usize,
}

impl FoundFiles {
    pub(super) fn count(&self) -> usize {
        self.paths.iter().flatten().count()
    }
}

#[derive(Debug)]
pub(super) struct Finder {
    pub(super) folder: PathBuf,
    reach: Reach,
    index: OnceCell<Index>,
}

/// The photographs below a folder.
#[derive(Debug, Default)]
struct Index {
    /// Path below the folder and full path, sorted.
    files: Vec<(String, PathBuf)>,
    /// Files by their folded path without extension.
    by_path: BTreeMap<String, Vec<usize>>,
    /// Files by their folded name without folder and extension.
    by_base: BTreeMap<String, Vec<usize>>,
}

impl Finder {
    pub(super) fn new(folder: PathBuf, reach: Reach) -> Self {
        Self { folder, reach, index: OnceCell::new() }
    }

    /// Finds the files of all names. A guessed file is never returned for two names.
    pub(super) fn find(&self, names: &[&str], wanted: Wanted) -> FoundFiles {
        let mut found: Vec<Option<Found>> =
            names.iter().map(|name| self.find_one(name, wanted)).collect();
        // Best match of each file, and the number of names with that match.
        let mut taken: BTreeMap<PathBuf, (Match, usize)> = BTreeMap::new();
        for file in found.iter().flatten() {
            let (by, count) = taken.entry(file.path.clone()).or_insert((file.by, 0));
            match file.by.cmp(by) {
                Ordering::Less => (*by, *count) = (file.by, 1),
                Ordering::Equal => *count += 1,
                Ordering::Greater => {}
            }
        }
        for place in &mut found {
            let is_shared = place.as_ref().is_some_and(|file| {
                let may_share = match file.by {
                    Match::Exact => true,
                    // The mask of a.jpg and of a.png is a.png.
                    Match::SamePath => wanted == Wanted::Mask,
                    Match::Elsewhere => false,
                };
                !may_share && taken.get(&file.path) != Some(&(file.by, 1))
            });
            if is_shared {
                *place = None;
            }
        }
        let elsewhere = found.iter().flatten().filter(|file| file.by != Match::Exact).count();
        let paths = found.into_iter().map(|file| Some(file?.path)).collect();
        FoundFiles { paths, elsewhere }
    }

    /// Returns the number of photographs below the folder, and of those not among `used`.
    pub(super) fn unused(&self, used: &[Option<PathBuf>]) -> [usize; 2] {
        let used: HashSet<&Path> = used.iter().flatten().map(PathBuf::as_path).collect();
        let files = || self.index().files.iter().filter(|(name, _)| is_read(name));
        [files().count(), files().filter(|(_, path)| !used.contains(path.as_path())).count()]
    }

    fn find_one(&self, name: &str, wanted: Wanted) -> Option<Found> {
        let exact = |path: PathBuf| path.is_file().then_some(Found { path, by: Match::Exact });
        // A name without extension stands for a file with one.
        let as_written = || {
            exact(self.folder.join(name)).or_else(|| {
                let with = |extension: &&str| self.folder.join(format!("{name}.{extension}"));
                EXTENSIONS.iter().map(with).find_map(exact)
            })
        };
        if wanted == Wanted::Photograph
            && !ends_unread(name)
            && let Some(found) = as_written()
        {
            return Some(found);
        }
        let name = ForeignName::new(name);
        let elsewhere = || {
            let last = match self.reach {
                Reach::Paths => name.parts.len().saturating_sub(1),
                Reach::Anywhere => name.parts.len(),
            };
            let path =
                (1..last).find_map(|dropped| self.by_path(&name.after_parts(dropped), wanted));
            path.or_else(|| self.by_base(&name, wanted))
        };
        let found = |by| move |path| Found { path, by };
        self.by_path(&name.after_parts(0), wanted)
            .map(found(Match::SamePath))
            .or_else(|| elsewhere().map(found(Match::Elsewhere)))
    }

    fn by_path(&self, name: &str, wanted: Wanted) -> Option<PathBuf> {
        let index = self.index();
        stems(name, wanted).into_iter().find_map(|sought| {
            let files = index.by_path.get(&fold(sought))?;
            index.best(files, sought, name)
        })
    }

    fn by_base(&self, name: &ForeignName, wanted: Wanted) -> Option<PathBuf> {
        let base = name.parts.last()?;
        if self.reach != Reach::Anywhere {
            return None;
        }
        let index = self.index();
        stems(base, wanted).into_iter().find_map(|sought| {
            let files = index.by_base.get(&fold(sought))?;
            let mut paths = files.iter().map(|&file| stem(&index.files[file].0));
            let first = paths.next()?;
            // Files that differ only in their extension are one photograph.
            paths.all(|path| path == first).then(|| index.best(files, first, base)).flatten()
        })
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.folder))
    }
}

impl Index {
    fn of(folder: &Path) -> Self {
        let mut files = Vec::new();
        let mut folders = vec![(folder.to_owned(), String::new(), 0)];
        while let Some((folder, prefix, depth)) = folders.pop() {
            // A folder that cannot be listed has no readable photograph.
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                // Links to folders are not followed, because they may form cycles.
                let kind = entry.file_type();
                let is_folder = kind.as_ref().is_ok_and(fs::FileType::is_dir);
                if is_folder && depth < MAX_DEPTH {
                    folders.push((entry.path(), format!("{name}/"), depth + 1));
                } else if is_photograph(&name) {
                    let is_file = kind.is_ok_and(|kind| kind.is_file()) || entry.path().is_file();
                    is_file.then(|| files.push((name, entry.path())));
                }
            }
        }
        // The file system's order is arbitrary.
        files.sort_unstable();
        let mut index = Self::default();
        for (number, (name, _)) in files.iter().enumerate() {
            let folded = fold(stem(name));
            let base = folded.rsplit_once('/').map_or(folded.as_str(), |(_, base)| base);
            index.by_base.entry(base.to_owned()).or_default().push(number);
            index.by_path.entry(folded).or_default().push(number);
        }
        index.files = files;
        index
    }

    /// Returns the best of files with equal folded paths; `None` if two are equally good except for their case.
    fn best(&self, files: &[usize], wanted_stem: &str, name: &str) -> Option<PathBuf> {
        let composed = |text: &str| text.nfc().collect::<String>();
        let (wanted_stem, extension) = (composed(wanted_stem), extension_of(name));
        let has_same_case = |file: &str| composed(stem(file)) == wanted_stem;
        let is_unclear = {
            let mut others = files.iter().map(|&file| composed(stem(&self.files[file].0)));
            let first = others.next();
            others.any(|other| Some(other) != first)
                && !files.iter().any(|&file| has_same_case(&self.files[file].0))
        };
        if is_unclear {
            return None;
        }
        let best = files.iter().max_by_key(|&&file| {
            let file_name = &self.files[file].0;
            let is_same_extension = extension_of(file_name) == extension;
            // The first by name among equals.
            (has_same_case(file_name), is_read(file_name), is_same_extension, Reverse(file))
        })?;
        Some(self.files[*best].1.clone())
    }
}

/// Returns the stems that a file of this name may have, likelier first.
fn stems(name: &str, wanted: Wanted) -> [&str; 2] {
    // `frame.001` may lack its extension.
    if wanted == Wanted::Photograph && is_photograph(name) {
        [stem(name), name]
    } else {
        [name, stem(name)]
    }
}

/// Returns a key that ignores case and Unicode form.
fn fold(name: &str) -> String {
    name.nfc().collect::<String>().to_lowercase().nfc().collect()
}

pub(super) fn extension_of(path: impl AsRef<Path>) -> String {
    path.as_ref().extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// True for photographs in a supported format.
fn is_read(name: &str) -> bool {
    EXTENSIONS.contains(&extension_of(name).as_str())
}

fn ends_unread(name: &str) -> bool {
    UNREAD_EXTENSIONS.contains(&extension_of(name).as_str())
}

/// True if the extension is a photograph's, supported or not.
pub(super) fn is_photograph(name: &str) -> bool {
    is_read(name) || ends_unread(name)
}

/// Returns the number of photographs directly in a folder.
pub(super) fn photographs_in(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter(|entry| is_read(&entry.file_name().to_string_lossy())).count()
}

/// Returns the first of these files in a folder, whatever the case of its name.
pub(super) fn file_in(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let files = entries(folder);
    names.iter().find_map(|name| {
        let is_it = |path: &&PathBuf| {
            path.file_name().is_some_and(|it| it.eq_ignore_ascii_case(name)) && path.is_file()
        };
        files.iter().find(is_it).cloned()
    })
}
/// Finds a file that a scene names. If it is not there, the longest existing end of the path counts.
pub(super) fn find_file(root: &Path, name: &str) -> PathBuf {
    let as_written = root.join(name);
    let foreign = ForeignName::new(name);
    let ends = (0..foreign.parts.len()).map(|dropped| root.join(foreign.after_parts(dropped)));
    std::iter::once(as_written.clone())
        .chain(ends)
        .find(|path| path.is_file())
        .unwrap_or(as_written)
}

// Text of other programs: byte order marks and UTF-16.

/// Byte order mark that Windows programs put before text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the text as UTF-8 without a byte order mark.
///
/// UTF-16 is recognised by its mark, or by a zero byte beside an ASCII character at the start. Other bytes stay as
/// they are.
pub(super) fn utf8(text: &[u8]) -> Cow<'_, [u8]> {
    match text {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_be_bytes)),
        [1..=127, 0, ..] => Cow::Owned(from_utf16(text, u16::from_le_bytes)),
        [0, 1..=127, ..] => Cow::Owned(from_utf16(text, u16::from_be_bytes)),
        _ => Cow::Borrowed(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)),
    }
}

/// True if text with this start is not UTF-8.
pub(super) fn is_utf16(start: &[u8]) -> bool {
    matches!(utf8(start), Cow::Owned(_))
}

/// Returns the problem and its remedy if a file starts like a web page or a Git LFS pointer.
pub(super) fn other_content(start: &[u8]) -> Option<&'static str> {
    let text = utf8(start).trim_ascii_start().to_ascii_lowercase();
    if start.starts_with(splat_mesh::file::ply::LFS_POINTER) {
        Some(splat_mesh::file::ply::LFS_MESSAGE)
    } else if text.starts_with(b"<!doctype") || text.starts_with(b"<html") {
        Some("is a web page. Download the file itself")
    } else {
        None
    }
}

/// Number of first bytes that [`other_content`] needs.
pub(super) const START_BYTES: u64 = 64;

fn from_utf16(text: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = text.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let letters = char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER));
    letters.collect::<String>().into_bytes()
}

// Lists of names in messages.

/// Number of photographs that a message names.
const MAX_NAMED: usize = 3;

/// Returns the first few items, and the number of the others.
pub(super) fn first_few(items: &[String]) -> String {
    let mut text = items.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if items.len() > MAX_NAMED {
        text += &format!(" and {} more", items.len() - MAX_NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_and_utf_16_become_utf_8() {
        let wide = |mark: &[u8], order: fn(u16) -> [u8; 2]| {
            [mark, &"{a: 1é}".encode_utf16().flat_map(order).collect::<Vec<_>>()].concat()
        };
        let plain = "{a: 1é}".as_bytes();
        for text in [
            plain.to_vec(),
            [BYTE_ORDER_MARK, plain].concat(),
            wide(&[0xff, 0xfe], u16::to_le_bytes),
            wide(&[0xfe, 0xff], u16::to_be_bytes),
            wide(&[], u16::to_le_bytes),
            wide(&[], u16::to_be_bytes),
        ] {
            assert_eq!(utf8(&text), plain, "{text:?}");
        }
        assert_eq!(utf8(&[0xc3, 0x28]), [0xc3, 0x28].as_slice());
        assert!(utf8(&[]).is_empty());
    }
}
