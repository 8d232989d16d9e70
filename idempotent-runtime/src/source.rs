//! Where a handler's transaction comes from.

use std::fmt;
use std::marker::PhantomData;

use sqlx::pool::PoolConnection;
use sqlx::{Pool, Transaction};

use crate::store::Settings;
use crate::{ClaimStore, Database};

/// Where a handler's transaction comes from: a pool, a [`ClaimStore`], the caller's transaction, or a connection.
///
/// A handler takes [`impl IntoSource<'_, DB>`](IntoSource), which is every `Into<Source<'_, DB>>`, so the caller passes the
/// thing itself:
///
/// | passed | what the handler does |
/// |---|---|
/// | `&Pool<DB>`, `&ClaimStore<DB>` | takes a connection from the pool, and begins and commits a transaction |
/// | `&mut Transaction<'_, DB>`, or a connection in a transaction | joins it behind a savepoint: `Err` undoes the handler alone, and `Processed` holds once the caller commits, best with [`commit`](crate::commit()) |
/// | `&mut DB::Connection` or `&mut PoolConnection<DB>` outside a transaction | begins and commits a transaction on it |
///
/// A generic argument is not reborrowed, so to pass one transaction twice write `handler(&mut *tx, ..)`.
///
/// A connection is in a transaction if it was begun through sqlx; one begun by sending `BEGIN` as text is not seen.
///
/// The two last are connections that the caller has kept, and that nobody can repair when a handler's future is dropped:
/// dropped while `BEGIN` is in flight, it may leave an empty transaction open there (a `PoolConnection` is then closed
/// instead of going back to its pool); and on MySQL and MariaDB autocommit stays on while the body runs, so what the
/// body writes after a lost deadlock commits itself. Prefer the pool.
pub struct Source<'c, DB: Database> {
    pub(crate) kind: Kind<'c, DB>,
    pub(crate) settings: &'c Settings,
}

/// What callers pass in the place of a handler's transaction: whatever is `Into<Source<'c, DB>>`.
///
/// The two bounds mean the same. This one is there for the compiler's message when something else is passed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the transaction of an `#[idempotent]` handler",
    label = "pass `&pool` or `&store` of `{DB}`, `&mut *tx` to join a transaction, or `&mut connection`",
    note = "a pool in an `Arc` is passed as `&*pool`"
)]
pub trait IntoSource<'c, DB: Database>: Into<Source<'c, DB>> {}

#[diagnostic::do_not_recommend]
impl<'c, DB: Database, T: Into<Source<'c, DB>>> IntoSource<'c, DB> for T {}

/// [`IntoSource<'c, DB>`](IntoSource) without a lifetime: it is in the type `L`, which is [`Lent<'c>`](Lent).
///
/// Where a function's own bounds have a lifetime, the compiler proves all that sqlx asks for anew in each function. So a `pub`
/// or `pub(crate)` handler has this bound, unless it has type parameters, and two hundred of them are checked in two thirds of
/// the time. One without may be a trait's function, whose declaration says `impl Into<Source<'_, DB>>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the transaction of an `#[idempotent]` handler",
    label = "pass `&pool` or `&store` of `{DB}`, `&mut *tx` to join a transaction, or `&mut connection`",
    note = "a pool in an `Arc` is passed as `&*pool`"
)]
pub trait IntoSourceFor<L, DB: Database> {
    /// The source, for as long as the argument and what it borrows from live.
    fn into_source<'c>(self) -> Source<'c, DB>
    where
        Self: 'c,
        L: 'c;
}

#[diagnostic::do_not_recommend]
impl<'l, DB: Database, T: Into<Source<'l, DB>>> IntoSourceFor<Lent<'l>, DB> for T {
    fn into_source<'c>(self) -> Source<'c, DB>
    where
        Self: 'c,
        Lent<'l>: 'c,
    {
        self.into()
    }
}

/// A lifetime as a type, of what is lent to a handler: see [`IntoSourceFor`].
#[derive(Debug)]
pub struct Lent<'c>(PhantomData<&'c ()>);

pub(crate) enum Kind<'c, DB: Database> {
    Pool(&'c Pool<DB>),
    Leased(&'c mut PoolConnection<DB>),
    Transaction(&'c mut DB::Connection),
    Bare(&'c mut DB::Connection),
}

impl<DB: Database> fmt::Debug for Source<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Pool(_) => "Source::Pool",
            Kind::Leased(_) => "Source::PoolConnection",
            Kind::Transaction(_) => "Source::Transaction",
            Kind::Bare(_) => "Source::Connection",
        })
    }
}

impl<'c, DB: Database> From<&'c Pool<DB>> for Source<'c, DB> {
    fn from(pool: &'c Pool<DB>) -> Self {
        Self { kind: Kind::Pool(pool), settings: DB::default_settings() }
    }
}

impl<'c, DB: Database> From<&'c ClaimStore<DB>> for Source<'c, DB> {
    fn from(store: &'c ClaimStore<DB>) -> Self {
        Self { kind: Kind::Pool(store.pool()), settings: store.settings() }
    }
}

impl<'c, DB: Database> From<&'c mut Transaction<'_, DB>> for Source<'c, DB> {
    fn from(transaction: &'c mut Transaction<'_, DB>) -> Self {
        Self { kind: Kind::Transaction(&mut **transaction), settings: DB::default_settings() }
    }
}

impl<'c, DB: Database> From<&'c mut PoolConnection<DB>> for Source<'c, DB> {
    fn from(connection: &'c mut PoolConnection<DB>) -> Self {
        Self { kind: Kind::Leased(connection), settings: DB::default_settings() }
    }
}

macro_rules! from_connection {
    ($feature:literal, $database:ty, $connection:ty) => {
        #[cfg(feature = $feature)]
        impl<'c> From<&'c mut $connection> for Source<'c, $database> {
            fn from(connection: &'c mut $connection) -> Self {
                Self {
                    kind: Kind::Bare(connection),
                    settings: <$database as crate::database::Operations>::default_settings(),
                }
            }
        }
    };
}

from_connection!("postgres", sqlx::Postgres, sqlx::PgConnection);
from_connection!("mysql", sqlx::MySql, sqlx::MySqlConnection);
from_connection!("sqlite", sqlx::Sqlite, sqlx::SqliteConnection);
