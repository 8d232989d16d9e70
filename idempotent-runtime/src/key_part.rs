//! What may be a part of a key, and its text.

use std::borrow::Cow;

use crate::PartWriter;

/// A value that may be a part of a key: stable across redeliveries, and with one text form.
///
/// Implemented for strings, integers, `bool`, `char`, references and smart pointers to those, and with
/// the features of the same names for `uuid::Uuid` and for the calendar dates of `chrono` and `time`.
/// For your own newtypes and field-less enums use `#[derive(KeyPart)]`.
///
/// Deliberately not implemented for floats (one value, several texts; `NaN`), for clocks and time
/// stamps (precision changes on the way through a broker or a database), and for `Option` (an absent
/// id is no id: say what to do about it with `missing = "reject"` or `missing = "process"`). Where such
/// a value really is the identity, choose its text yourself with `.to_string()`.
///
/// # Example
///
/// ```
/// use idempotent_runtime::{KeyPart, PartWriter};
///
/// struct Iban(String);
///
/// impl KeyPart for Iban {
///     fn write_key_part(&self, part: &mut PartWriter<'_>) {
///         part.write_str(&self.0.replace(' ', ""));
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of an idempotency key",
    label = "not a `KeyPart`",
    note = "strings, integers, `bool`, `char`, `Uuid` and calendar dates can, and so can newtypes and field-less enums with `#[derive(KeyPart)]`",
    note = "of a whole message, name the field that identifies it, as in `{{event.id}}`",
    note = "a float or a time stamp has no stable text: take an id of the message, or choose the text yourself, with `.to_string()` as in `{{event.amount.to_string()}}`, or with a method of yours that returns a `String`",
    note = "an `Option` needs `missing = \"reject\"` or `missing = \"process\"` in the attribute"
)]
pub trait KeyPart {
    /// Writes the value's text. What it writes is encoded on the way, so any character is allowed.
    fn write_key_part(&self, part: &mut PartWriter<'_>);
}

/// A [`KeyPart`] or an `Option` of one: what a template takes when `missing` says what an absent part means.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of an idempotency key",
    label = "neither a `KeyPart` nor an `Option` of one",
    note = "strings, integers, `bool`, `char`, `Uuid` and calendar dates can, and so can newtypes and field-less enums with `#[derive(KeyPart)]`",
    note = "a float or a time stamp has no stable text: take an id of the message, or name a method of yours that returns a `String` or an `Option<String>`, as in `{{event.amount_text()}}`"
)]
pub trait OptionalKeyPart {
    /// Writes the value's text, or nothing where it is absent.
    fn write_optional_key_part(&self, part: &mut PartWriter<'_>);
}

#[diagnostic::do_not_recommend]
impl<T: KeyPart + ?Sized> OptionalKeyPart for T {
    fn write_optional_key_part(&self, part: &mut PartWriter<'_>) {
        self.write_key_part(part);
    }
}

#[diagnostic::do_not_recommend]
impl<T: KeyPart> OptionalKeyPart for Option<T> {
    fn write_optional_key_part(&self, part: &mut PartWriter<'_>) {
        match self {
            Some(value) => value.write_key_part(part),
            None => part.absent(),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: KeyPart> OptionalKeyPart for &Option<T> {
    fn write_optional_key_part(&self, part: &mut PartWriter<'_>) {
        (**self).write_optional_key_part(part);
    }
}

#[diagnostic::do_not_recommend]
impl KeyPart for str {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_str(self);
    }
}

#[diagnostic::do_not_recommend]
impl KeyPart for char {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_str(self.encode_utf8(&mut [0; 4]));
    }
}

macro_rules! key_part_by_display {
    ($($ty:ty),* $(,)?) => {$(
        #[diagnostic::do_not_recommend]
        impl KeyPart for $ty {
            fn write_key_part(&self, part: &mut PartWriter<'_>) {
                part.write_fmt(format_args!("{self}"));
            }
        }
    )*};
}

macro_rules! key_part_by_deref {
    ($($pointer:ty),* $(,)?) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: KeyPart + ?Sized> KeyPart for $pointer {
            fn write_key_part(&self, part: &mut PartWriter<'_>) {
                (**self).write_key_part(part);
            }
        }
    )*};
}

key_part_by_display!(bool, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);
key_part_by_display!(
    std::num::NonZeroI8,
    std::num::NonZeroI16,
    std::num::NonZeroI32,
    std::num::NonZeroI64,
    std::num::NonZeroI128,
    std::num::NonZeroIsize,
    std::num::NonZeroU8,
    std::num::NonZeroU16,
    std::num::NonZeroU32,
    std::num::NonZeroU64,
    std::num::NonZeroU128,
    std::num::NonZeroUsize,
);
key_part_by_deref!(&T, &mut T, Box<T>, std::rc::Rc<T>, std::sync::Arc<T>);

#[diagnostic::do_not_recommend]
impl KeyPart for String {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_str(self);
    }
}

#[diagnostic::do_not_recommend]
impl<T: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, T> {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        (**self).write_key_part(part);
    }
}

/// Hyphenated lower-case text.
#[cfg(feature = "uuid")]
#[diagnostic::do_not_recommend]
impl KeyPart for uuid::Uuid {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_str(self.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
    }
}

/// `2026-11-30`, ISO 8601.
#[cfg(feature = "chrono")]
#[diagnostic::do_not_recommend]
impl KeyPart for chrono::NaiveDate {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_fmt(format_args!("{self:?}"));
    }
}

/// `2026-11-30`, ISO 8601.
#[cfg(feature = "time")]
#[diagnostic::do_not_recommend]
impl KeyPart for time::Date {
    fn write_key_part(&self, part: &mut PartWriter<'_>) {
        part.write_fmt(format_args!("{self}"));
    }
}
