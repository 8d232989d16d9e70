//! Keys: how fields of a message become the text that identifies it.
//!
//! The stored form is printable ASCII of at most 255 bytes, the same on every database, so that no
//! collation, case folding, padding or truncation can make two keys one (G5).

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

use crate::{Error, KeyPart, OptionalKeyPart};

/// The longest stored key, in bytes. Longer forms are replaced by their digest.
pub(crate) const MAX_KEY: usize = 255;
/// The longest stored sender, in bytes. Longer forms are replaced by their digest.
pub(crate) const MAX_SENDER: usize = 128;

/// Takes the text of one part, encodes it, and notes whether it was blank.
#[derive(Debug)]
pub struct PartWriter<'a> {
    out: &'a mut String,
    escaped: AsciiSet,
    blank: bool,
}

impl PartWriter<'_> {
    /// Writes text.
    pub fn write_str(&mut self, text: &str) {
        self.blank = self.blank && text.chars().all(char::is_whitespace);
        for &byte in text.as_bytes() {
            if self.escaped.contains(byte) {
                push_escaped(self.out, byte);
            } else {
                self.out.push(char::from(byte));
            }
        }
    }

    /// Writes what `write!` formats.
    pub fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) {
        // `fmt::Write for PartWriter` never fails, so only a failing `Display` could make this an error;
        // what such a value wrote until then still counts.
        let _ = fmt::Write::write_fmt(self, arguments);
    }
}

impl PartWriter<'_> {
    /// An absent value. In a key it is a missing part; in a fingerprint it differs from every value that is there, since
    /// elsewhere `%` is followed by two hexadecimal digits.
    pub(crate) fn absent(&mut self) {
        self.out.push_str("%none");
    }
}

impl fmt::Write for PartWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        PartWriter::write_str(self, text);
        Ok(())
    }
}

fn push_escaped(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// The bytes that are percent-encoded inside a part; everything outside ASCII always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsciiSet(u128);

impl AsciiSet {
    /// `%`, space, control characters and DEL.
    const ALWAYS: Self = Self(((1 << 33) - 1) | (1 << b'%') | (1 << 127));

    /// What has to be encoded so that no part can contain the start of a separator.
    const fn for_literals(literals: &[&str]) -> Self {
        let mut set = Self::ALWAYS.0;
        let mut piece = 0;
        while piece < literals.len() {
            let bytes = literals[piece].as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                if bytes[at].is_ascii_punctuation() {
                    set |= 1 << bytes[at];
                }
                at += 1;
            }
            piece += 1;
        }
        Self(set)
    }

    const fn contains(self, byte: u8) -> bool {
        byte >= 128 || self.0 & (1 << byte) != 0
    }
}

/// A checked template: its text as written and its literal pieces, one more than it has parts.
#[derive(Debug)]
pub struct Template {
    text: &'static str,
    literals: &'static [&'static str],
    escaped: AsciiSet,
}

impl Template {
    /// Of an option that is not there.
    pub const EMPTY: Self = Self::new("", &[""]);

    /// The macro has checked that the pieces fit the rules.
    #[must_use]
    pub const fn new(text: &'static str, literals: &'static [&'static str]) -> Self {
        Self { text, literals, escaped: AsciiSet::for_literals(literals) }
    }

    /// How many placeholders it has.
    pub(crate) const fn placeholders(&self) -> usize {
        self.literals.len().saturating_sub(1)
    }

    /// The template as written in the attribute.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        self.text
    }
}

/// The stored form of a key or a sender, or the name of the part that was missing.
#[derive(Debug)]
pub enum Encoded {
    /// The stored form.
    Stored(Cow<'static, str>),
    /// A part was absent, empty or blank.
    Missing(&'static str),
    /// The handler has no key: its `sequence` stands alone.
    None,
}

/// Fills a template with the parts of one message.
#[derive(Debug)]
pub struct Writer {
    template: &'static Template,
    limit: usize,
    written: usize,
    out: String,
    missing: Option<&'static str>,
}

impl Writer {
    pub(crate) fn new(template: &'static Template, limit: usize) -> Self {
        // Most keys are a UUID with a word or two; templates without parts need no buffer at all.
        let capacity = if template.literals.len() > 1 { 64 } else { 0 };
        Self { template, limit, written: 0, out: String::with_capacity(capacity), missing: None }
    }

    /// Writes the next part.
    #[must_use]
    pub fn part<P: KeyPart + ?Sized>(self, name: &'static str, value: &P) -> Self {
        self.write(name, |part| value.write_key_part(part))
    }

    /// Writes the next part, which may be absent.
    #[must_use]
    pub fn optional<P: OptionalKeyPart + ?Sized>(self, name: &'static str, value: &P) -> Self {
        self.write(name, |part| value.write_optional_key_part(part))
    }

    fn write(mut self, name: &'static str, write: impl FnOnce(&mut PartWriter<'_>)) -> Self {
        self.out.push_str(self.template.literals[self.written]);
        self.written += 1;
        let mut part = PartWriter { out: &mut self.out, escaped: self.template.escaped, blank: true };
        write(&mut part);
        if part.blank && self.missing.is_none() {
            self.missing = Some(name);
        }
        self
    }

    /// The stored form.
    #[must_use]
    pub fn finish(mut self) -> Encoded {
        let last = self.template.literals.last().copied().unwrap_or_default(); // an empty template has none
        if let Some(name) = self.missing {
            Encoded::Missing(name)
        } else if self.written == 0 {
            Encoded::Stored(Cow::Borrowed(last))
        } else {
            self.out.push_str(last);
            Encoded::Stored(Cow::Owned(bounded(self.out, self.limit)))
        }
    }
}

/// What a message says, in 32 bytes: 4 of the template's digest, and 28 of the digest of its form.
///
/// So a fingerprint of another template says nothing, instead of that every message has changed.
pub(crate) type Fingerprint = [u8; 32];

/// The part of a [`Fingerprint`] that names its template.
const TEMPLATE_BYTES: usize = 4;

impl Writer {
    /// The fingerprint of what was written, parts that are blank or absent included.
    #[must_use]
    pub fn digest(mut self) -> Fingerprint {
        self.out.push_str(self.template.literals.last().copied().unwrap_or_default());
        let mut fingerprint: Fingerprint = Sha256::digest(self.template.text).into();
        let form = Sha256::digest(&self.out);
        fingerprint[TEMPLATE_BYTES..].copy_from_slice(&form[TEMPLATE_BYTES..]);
        fingerprint
    }
}

/// Whether two fingerprints are known to be of different contents.
pub(crate) fn contradicts(fingerprint: &Fingerprint, stored: &[u8]) -> bool {
    fingerprint.len() == stored.len()
        && fingerprint[..TEMPLATE_BYTES] == stored[..TEMPLATE_BYTES]
        && fingerprint[TEMPLATE_BYTES..] != stored[TEMPLATE_BYTES..]
}

/// Replaces what is too long by a digest that no other form can equal: elsewhere `%` is followed by
/// two hexadecimal digits, never by `s`.
fn bounded(form: String, limit: usize) -> String {
    if form.len() <= limit {
        return form;
    }
    let mut digest = String::with_capacity(72);
    digest.push_str("%sha256:");
    for byte in Sha256::digest(&form) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// A sender and a key in their stored forms: what [`ClaimStore::claim`](crate::ClaimStore::claim) takes.
///
/// The attribute builds the same from its templates; this is for code that works without it.
///
/// ```
/// use idempotent_runtime::Key;
///
/// # fn main() -> Result<(), idempotent_runtime::Error> {
/// let key = Key::new("evt_001")?.with_sender("stripe")?;
/// assert_eq!((key.sender(), key.key()), ("stripe", "evt_001"));
///
/// let key = Key::from_parts(&[&"a:b", &7_i64])?; // as the template "{x}:{y}" would
/// assert_eq!(key.key(), "a%3Ab:7");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    sender: Cow<'static, str>,
    key: Cow<'static, str>,
}

static ONE_PART: Template = Template::new("{}", &["", ""]);
static JOINED_BY_COLONS: Template = Template::new("{}:{}", &["", ":", ""]);

impl Key {
    /// A key of one part, as the template `"{part}"` makes it, with an empty sender.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] where the part is empty or blank.
    pub fn new<P: KeyPart + ?Sized>(part: &P) -> Result<Self, Error> {
        let form = stored(&ONE_PART, &[&|out| part.write_key_part(out)], MAX_KEY, "key")?;
        Ok(Self { sender: Cow::Borrowed(""), key: Cow::Owned(form) })
    }

    /// A key of several parts, as the template `"{a}:{b}:{c}"` makes it, with an empty sender.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] where there is no part, or one is empty or blank.
    pub fn from_parts(parts: &[&dyn KeyPart]) -> Result<Self, Error> {
        if let [part] = parts {
            return Self::new(*part);
        }
        let writers: Vec<_> =
            parts.iter().map(|part| move |out: &mut PartWriter<'_>| part.write_key_part(out)).collect();
        let writers: Vec<&dyn Fn(&mut PartWriter<'_>)> = writers.iter().map(|write| write as _).collect();
        let form = stored(&JOINED_BY_COLONS, &writers, MAX_KEY, "key")?;
        Ok(Self { sender: Cow::Borrowed(""), key: Cow::Owned(form) })
    }

    /// The same key from another sender.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] where the sender is empty or blank.
    pub fn with_sender<P: KeyPart + ?Sized>(self, sender: &P) -> Result<Self, Error> {
        let form = stored(&ONE_PART, &[&|out| sender.write_key_part(out)], MAX_SENDER, "sender")?;
        Ok(Self { sender: Cow::Owned(form), ..self })
    }

    /// The stored form of the sender.
    #[must_use]
    pub fn sender(&self) -> &str {
        &self.sender
    }

    /// The stored form of the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

fn stored(
    template: &Template,
    parts: &[&dyn Fn(&mut PartWriter<'_>)],
    limit: usize,
    what: &'static str,
) -> Result<String, Error> {
    let mut out = String::with_capacity(64);
    for (index, write) in parts.iter().enumerate() {
        if index > 0 {
            out.push(':');
        }
        let mut part = PartWriter { out: &mut out, escaped: template.escaped, blank: true };
        write(&mut part);
        if part.blank {
            return Err(Error::missing_key("", what));
        }
    }
    if parts.is_empty() {
        return Err(Error::missing_key("", what));
    }
    Ok(bounded(out, limit))
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
