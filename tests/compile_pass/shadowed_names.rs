//! M4: the user's crate gives every name that an expansion could mean another meaning.

#![deny(warnings)]

use ::idempotent_runtime::{KeyPart, idempotent};

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod shadows {
    pub struct Result;
    pub struct Option;
    pub struct Outcome;
    pub struct Source;
    pub struct Box;
    pub struct String;
    pub struct Handler;
    pub struct Sqlite;
    pub struct Claim;
    pub trait Into {}
    pub trait From {}
    pub trait Send {}
    pub fn Ok() {}
    pub fn Err() {}
    pub fn Some() {}
    pub const None: u8 = 0;
    pub struct bool;
    pub struct str;
    pub struct u64;
}
#[allow(unused_imports, non_snake_case)]
use shadows::*;

#[allow(dead_code)]
mod idempotent_runtime {}
#[allow(dead_code)]
mod std {}
#[allow(dead_code)]
mod core {}
#[allow(dead_code)]
mod sqlx {}
#[allow(dead_code)]
mod inventory {}

#[allow(unused_macros)]
macro_rules! concat {
    ($($tokens:tt)*) => {
        compile_error!("shadowed")
    };
}
#[allow(unused_macros)]
macro_rules! module_path {
    () => {
        compile_error!("shadowed")
    };
}
#[allow(unused_macros)]
macro_rules! file {
    () => {
        compile_error!("shadowed")
    };
}
#[allow(unused_macros)]
macro_rules! line {
    () => {
        compile_error!("shadowed")
    };
}

#[derive(KeyPart)]
struct Id(i64);

#[derive(KeyPart)]
enum Kind {
    #[key_part("a")]
    Some,
    #[key_part("b")]
    Ok,
}

#[idempotent(key = "{id}:{kind}", sender = "{sender}", horizon = "1d", missing = "reject")]
async fn handler(
    tx: &mut ::sqlx::SqliteTransaction<'_>,
    id: &Id,
    kind: Kind,
    sender: &'static ::std::primitive::str,
    claim: &::idempotent_runtime::Claim,
) -> ::std::result::Result<::std::string::String, ::sqlx::Error> {
    ::sqlx::query("SELECT 1").execute(&mut **tx).await?;
    ::std::result::Result::Ok(::std::string::ToString::to_string(claim.key()))
}

type Tx<'a> = ::sqlx::SqliteTransaction<'a>;
type Answer = ::std::result::Result<(), ::sqlx::Error>;

#[idempotent(key = "{id}")]
async fn aliases(#[tx] _: &mut Tx<'_>, id: &Id) -> Answer {
    ::std::result::Result::Ok(())
}

async fn callers(pool: &::sqlx::SqlitePool) -> ::std::result::Result<(), ::sqlx::Error> {
    handler(pool, &Id(1), Kind::Some, "a").await?;
    handler(pool, &Id(1), Kind::Ok, "a").await?;
    aliases(pool, &Id(1)).await?;
    ::std::result::Result::Ok(())
}

fn main() {
    _ = callers;
}
