//! M6: the runtime is renamed, or reached through another crate or module.

#![deny(warnings)]

// Stands for a dependency that is renamed in the manifest.
extern crate idempotent_runtime as renamed;

/// Stands for a crate that re-exports the runtime.
mod facade {
    pub mod messaging {
        pub use idempotent_runtime as idempotency;
        pub use idempotent_runtime::{KeyPart, idempotent};
    }
}

use facade::messaging::{KeyPart, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

#[derive(KeyPart)]
#[key_part(crate = facade::messaging::idempotency)]
struct Id(u64);

#[derive(KeyPart)]
#[key_part(crate = crate::facade::messaging::idempotency)]
enum Kind {
    #[key_part("a")]
    A,
}

#[idempotent(key = "{id}:{kind}", crate = facade::messaging::idempotency)]
async fn relative(_tx: &mut SqliteTransaction<'_>, id: Id, kind: Kind) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(key = "{id}", crate = crate::facade::messaging::idempotency)]
async fn from_the_crate(_tx: &mut SqliteTransaction<'_>, id: Id) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(key = "{id}", crate = renamed)]
async fn renamed_dependency(_tx: &mut SqliteTransaction<'_>, id: Id) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(key = "{id}", crate = ::idempotent_runtime)]
async fn absolute(_tx: &mut SqliteTransaction<'_>, id: Id) -> sqlx::Result<()> {
    Ok(())
}

mod inner {
    use super::*;

    #[idempotent(key = "{id}", crate = super::facade::messaging::idempotency)]
    pub async fn relative_to_a_module(_tx: &mut SqliteTransaction<'_>, id: Id) -> sqlx::Result<()> {
        Ok(())
    }
}

macro_rules! by_dollar_crate {
    ($name:ident) => {
        #[idempotent(key = "{id}", crate = $crate::facade::messaging::idempotency)]
        async fn $name(_tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<()> {
            Ok(())
        }
    };
}
by_dollar_crate!(from_a_macro);

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    relative(pool, Id(1), Kind::A).await?;
    from_the_crate(pool, Id(1)).await?;
    renamed_dependency(pool, Id(1)).await?;
    absolute(pool, Id(1)).await?;
    inner::relative_to_a_module(pool, Id(1)).await?;
    from_a_macro(pool, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
