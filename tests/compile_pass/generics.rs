//! Generics, `where` clauses, lifetimes, const parameters, `impl Trait` arguments and explicit type arguments.

#![deny(warnings)]

use std::fmt::Display;

use idempotent_runtime::{KeyPart, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

pub trait Message: Sync {
    type Id: KeyPart;
    fn id(&self) -> Self::Id;
}

struct Order(u64);

impl Message for Order {
    type Id = u64;
    fn id(&self) -> u64 {
        self.0
    }
}

/// Explicit type arguments are those that the user declared, in a public function too.
#[idempotent(key = "{message.id()}")]
pub async fn message<M: Message>(tx: &mut SqliteTransaction<'_>, message: &M) -> sqlx::Result<M::Id> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(message.id())
}

#[idempotent(key = "{id}")]
async fn where_clause<T, const N: usize>(
    _tx: &mut SqliteTransaction<'_>,
    id: u8,
    values: [T; N],
) -> sqlx::Result<[T; N]>
where
    T: Display + Clone,
{
    let _ = id;
    Ok(values)
}

#[idempotent(key = "{id}")]
async fn impl_trait(
    tx: &mut SqliteTransaction<'_>,
    id: impl KeyPart,
    apply: impl Fn(&str) -> String,
    name: impl Into<String>,
) -> sqlx::Result<String> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(apply(&name.into()))
}

#[idempotent(key = "{left}:{right}")]
pub async fn lifetimes<'a, 'b>(
    _tx: &mut SqliteTransaction<'_>,
    left: &'a str,
    right: &'b str,
    pick: for<'x> fn(&'x str) -> &'x str,
) -> sqlx::Result<(&'a str, &'b str)> {
    Ok((pick(left), pick(right)))
}

/// The names that the macro would choose are taken.
#[idempotent(key = "{id}")]
pub async fn taken_names<'via>(_tx: &mut SqliteTransaction<'_>, id: &'via str) -> sqlx::Result<&'via str> {
    struct Via;
    let _ = Via;
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn dynamic(_tx: &mut SqliteTransaction<'_>, id: u8, display: &(dyn Display + Sync)) -> sqlx::Result<String> {
    let _ = id;
    Ok(display.to_string())
}

/// Items in the body do not change what the signature means.
#[idempotent(key = "{id}")]
async fn items_in_the_body(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    use std::string::String as SqliteTransaction;
    struct Claim(SqliteTransaction);
    const HANDLER: u8 = 1;
    let handler = Claim(SqliteTransaction::new()).0.len();
    let session = u8::try_from(handler).unwrap_or(HANDLER);
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id + session)
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    message::<Order>(pool, &Order(1)).await?;
    where_clause::<_, 2>(pool, 1, ["a", "b"]).await?;
    impl_trait(pool, 1_u8, str::to_owned, "a").await?;
    lifetimes(pool, "a", "b", |text| text).await?;
    taken_names(pool, "a").await?;
    dynamic(pool, 1, &1).await?;
    items_in_the_body(pool, 1).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
