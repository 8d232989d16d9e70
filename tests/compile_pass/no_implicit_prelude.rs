//! M5: no name is in scope that the user did not import.

#![no_implicit_prelude]
#![deny(warnings)]

#[derive(::idempotent_runtime::KeyPart)]
pub struct Id(u64);

#[derive(::idempotent_runtime::KeyPart)]
pub enum Kind {
    #[key_part("a")]
    A,
}

type Tx<'a> = ::sqlx::SqliteTransaction<'a>;
type Answer = ::std::result::Result<(), ::sqlx::Error>;

/// A handler.
#[::idempotent_runtime::idempotent(key = "{id}:{kind}", sender = "{sender}", horizon = "1d", missing = "reject")]
pub async fn handler(
    tx: &mut ::sqlx::SqliteTransaction<'_>,
    id: &Id,
    kind: Kind,
    sender: ::std::option::Option<&str>,
    claim: &::idempotent_runtime::Claim,
) -> ::std::result::Result<u64, ::sqlx::Error> {
    ::sqlx::query("SELECT 1").execute(&mut **tx).await?;
    ::std::result::Result::Ok(claim.key().len() as u64)
}

#[::idempotent_runtime::idempotent(key = "{id}")]
async fn aliases(#[tx] _tx: &mut Tx<'_>, id: &Id) -> Answer {
    ::std::result::Result::Ok(())
}

async fn callers(pool: &::sqlx::SqlitePool) -> ::std::result::Result<(), ::sqlx::Error> {
    handler(pool, &Id(1), Kind::A, ::std::option::Option::None).await?;
    aliases(pool, &Id(1)).await?;
    ::std::result::Result::Ok(())
}

fn main() {
    let _ = callers;
}
