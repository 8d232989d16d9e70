//! What the macros' expansions name. Not public interface: it changes with the macros, of the same version.

pub use core::option::Option::{self, None, Some};
pub use core::result::Result::{self, Err, Ok};
pub use core::{concat, file, line, module_path};

pub use inventory;
#[cfg(feature = "mysql")]
pub use sqlx::MySql;
#[cfg(feature = "postgres")]
pub use sqlx::Postgres;
#[cfg(feature = "sqlite")]
pub use sqlx::Sqlite;

pub use crate::batch::Messages;
pub use crate::catalog::{IfExpired, Isolation, Missing, Registered, Spec, handler};
pub use crate::key::{Encoded, Template, Writer};
pub use crate::message::Message;
pub use crate::replay::Replay;
pub use crate::source::IntoSourceFor;
pub use tracing::Instrument;

pub use crate::transient::{AnyError, AsAnyError, AsSharedError, NoError, OwnError, Probe, again};
use crate::{Claim, KeyPart, PartWriter};

/// What a handler's transaction parameter refers to, so that an alias leads to its database.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that `#[idempotent]` can hand to a handler",
    label = "expected `PgTransaction<'_>`, `MySqlTransaction<'_>` or `SqliteTransaction<'_>` of sqlx, or an alias of one",
    note = "`idempotent-runtime` needs the feature of the database: `postgres`, `mysql` or `sqlite`"
)]
pub trait TransactionParam {
    /// The database.
    type Database: crate::Database;
}

#[diagnostic::do_not_recommend]
impl<DB: crate::Database> TransactionParam for sqlx::Transaction<'_, DB> {
    type Database = DB;
}

#[cfg(feature = "postgres")]
#[diagnostic::do_not_recommend]
impl TransactionParam for sqlx::PgConnection {
    type Database = sqlx::Postgres;
}

#[cfg(feature = "mysql")]
#[diagnostic::do_not_recommend]
impl TransactionParam for sqlx::MySqlConnection {
    type Database = sqlx::MySql;
}

#[cfg(feature = "sqlite")]
#[diagnostic::do_not_recommend]
impl TransactionParam for sqlx::SqliteConnection {
    type Database = sqlx::Sqlite;
}

/// [`IntoSourceFor`] for a parameter whose type is an alias. That it is no transaction is said where the source is made, and
/// not again for each mention of the parameter in the signature.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the transaction of an `#[idempotent]` handler",
    label = "pass `&pool` or `&store`, `&mut *tx` to join a transaction, or `&mut connection`, all of the database of `{P}`",
    note = "a pool in an `Arc` is passed as `&*pool`"
)]
pub trait SourceOf<L, P: ?Sized> {
    /// The source itself.
    fn source<'c>(self) -> crate::Source<'c, P::Database>
    where
        Self: 'c,
        L: 'c,
        P: TransactionParam;
}

#[diagnostic::do_not_recommend]
impl<'l, P: TransactionParam, S: Into<crate::Source<'l, P::Database>>> SourceOf<crate::Lent<'l>, P> for S {
    fn source<'c>(self) -> crate::Source<'c, P::Database>
    where
        Self: 'c,
        crate::Lent<'l>: 'c,
    {
        self.into()
    }
}

/// The type that a `&Claim` parameter refers to.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the claim that `#[idempotent]` gives a handler",
    label = "expected `idempotent_runtime::Claim`",
    note = "a parameter of another type called `Claim`, which callers pass, is marked `#[message]`"
)]
pub trait ClaimParam {
    /// The claim itself.
    fn given(claim: &Claim) -> &Self;

    /// Those of a batch.
    fn all(claims: &[Claim]) -> &[Self]
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend]
impl ClaimParam for Claim {
    fn given(claim: &Claim) -> &Self {
        claim
    }

    fn all(claims: &[Claim]) -> &[Self] {
        claims
    }
}

/// The claim as the parameter's type.
#[must_use]
pub fn claim<C: ClaimParam + ?Sized>(claim: &Claim) -> &C {
    C::given(claim)
}

/// The claims of a batch as the parameter's type.
#[must_use]
pub fn claims<C: ClaimParam>(claims: &[Claim]) -> &[C] {
    C::all(claims)
}

/// The type that a handler returns, so that an alias leads to its `Ok` and `Err`.
#[diagnostic::on_unimplemented(
    message = "an `#[idempotent]` handler returns a `Result`, not `{Self}`",
    label = "expected `Result<T, E>` or an alias of it"
)]
pub trait HandlerResult {
    /// The value.
    type Ok;
    /// The error.
    type Err;
}

impl<T, E> HandlerResult for Result<T, E> {
    type Ok = T;
    type Err = E;
}

/// The field of a newtype with `#[derive(KeyPart)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of an idempotency key, so `KeyPart` cannot be derived for its newtype",
    label = "not a `KeyPart`",
    note = "a type of your own can derive `KeyPart` itself",
    note = "otherwise, instead of the derive, write an `impl idempotent_runtime::KeyPart` and choose the text in it: `fn write_key_part(&self, part: &mut idempotent_runtime::PartWriter<'_>) {{ part.write_str(&self.0.to_string()) }}`"
)]
pub trait FieldPart {
    /// Writes what the newtype writes.
    fn write_field(&self, part: &mut PartWriter<'_>);
}

#[diagnostic::do_not_recommend]
impl<T: KeyPart + ?Sized> FieldPart for T {
    fn write_field(&self, part: &mut PartWriter<'_>) {
        self.write_key_part(part);
    }
}

/// Writes the field of a newtype.
pub fn write_field<F: FieldPart + ?Sized>(field: &F, part: &mut PartWriter<'_>) {
    field.write_field(part);
}

/// The error type of a handler. A trait of its own, because the compiler lets nobody word the error of a missing `From`.
#[diagnostic::on_unimplemented(
    message = "the error type of an `#[idempotent]` handler has to take this library's errors, and `{Self}` does not",
    label = "does not implement `From<idempotent_runtime::Error>`",
    note = "implement `From<idempotent_runtime::Error>` for it (with thiserror: a variant `Idempotent(#[from] idempotent_runtime::Error)`), or return `sqlx::Result`, `anyhow::Result` or `Result<_, idempotent_runtime::Error>`, which take them as they are"
)]
pub trait HandlerError {
    /// Takes the library's error.
    fn from_error(error: crate::Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<crate::Error>> HandlerError for E {
    fn from_error(error: crate::Error) -> Self {
        error.into()
    }
}
