//! The claim table's name and the statements that name it.

use std::fmt;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::Error;

/// `processed_messages`, or `schema.name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    schema: Option<String>,
    name: String,
}

impl TableName {
    pub(crate) const DEFAULT: &str = "processed_messages";
    /// What is appended to make the name of the table that records the migrations.
    const MIGRATIONS: &str = "_migrations";
    /// What is appended to make the name of the table of positions.
    pub(crate) const POSITIONS: &str = "_positions";
    /// What is appended to make the name of the table that says which janitor is active.
    pub(crate) const JANITOR: &str = "_janitor";
    /// Every claim table has a table of each of these names beside it.
    #[cfg(feature = "testing")]
    pub(crate) const BESIDE: [&str; 3] = [Self::MIGRATIONS, Self::POSITIONS, Self::JANITOR];
    /// What is appended to make the name of the index over the expiry, where an index needs one of its own in the schema.
    const EXPIRY_INDEX: &str = "_expires_at";
    /// PostgreSQL's limit for an identifier is 63 bytes, MySQL's 64 characters.
    const MAX_IDENTIFIER: usize = 63;

    /// Only plain identifiers, so that a name can stand in SQL text on every database.
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = name.split('.').collect();
        let plain = |part: &&str| {
            part.len() + Self::MIGRATIONS.len() <= Self::MAX_IDENTIFIER
                && part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match (parts.as_slice(), parts.iter().all(plain)) {
            ([name], true) => Ok(Self { schema: None, name: (*name).to_owned() }),
            ([schema, name], true) => Ok(Self { schema: Some((*schema).to_owned()), name: (*name).to_owned() }),
            _ => Err(Error::Configuration(format!(
                "`{name}` is no table name that works on every database: write `name` or `schema.name`, \
                 each a letter or `_` followed by letters, digits and `_`, at most {} characters",
                Self::MAX_IDENTIFIER - Self::MIGRATIONS.len()
            ))),
        }
    }

    /// With the schema in which a table of this name would be made.
    #[cfg(feature = "postgres")]
    pub(crate) fn made_in(&self, schema: Option<&str>) -> Self {
        let made =
            schema.filter(|_| self.schema.is_none()).map(|schema| Self::parse(&format!("{schema}.{}", self.name)));
        made.and_then(Result::ok).unwrap_or_else(|| self.clone())
    }

    /// Schema and name.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        (self.schema.as_deref(), &self.name)
    }

    /// Schema and name of the claims and of the positions.
    #[cfg(feature = "testing")]
    pub(crate) fn marks(&self) -> [(Option<String>, String); 2] {
        ["", Self::POSITIONS].map(|suffix| (self.schema.clone(), format!("{}{suffix}", self.name)))
    }

    /// In SQL, between the database's quotes, so that a keyword is a name like any other.
    pub(crate) fn quoted(&self, quote: char) -> String {
        self.quoted_with(quote, "")
    }

    /// The table beside it that records which migrations were applied.
    pub(crate) fn migrations_quoted(&self, quote: char) -> String {
        self.quoted_with(quote, Self::MIGRATIONS)
    }

    /// The table beside it that holds how far each entity has come.
    pub(crate) fn positions_quoted(&self, quote: char) -> String {
        self.quoted_with(quote, Self::POSITIONS)
    }

    /// The table beside it that says which janitor is active.
    pub(crate) fn janitor_quoted(&self, quote: char) -> String {
        self.quoted_with(quote, Self::JANITOR)
    }

    /// Fills a statement or a migration: `{table}`, and the names that are made from it.
    pub(crate) fn fill(&self, sql: &str, quote: char) -> String {
        sql.replace("{table}", &self.quoted(quote))
            .replace("{name}", &format!("{quote}{}{quote}", self.name)) // without the schema
            .replace("{positions}", &self.positions_quoted(quote))
            .replace("{janitor}", &self.janitor_quoted(quote))
            .replace("{expiry_index}", &self.quoted_with(quote, Self::EXPIRY_INDEX))
    }

    fn quoted_with(&self, quote: char, suffix: &str) -> String {
        let name = &self.name;
        match &self.schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{name}{suffix}{quote}"),
            None => format!("{quote}{name}{suffix}{quote}"),
        }
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, name: Self::DEFAULT.to_owned() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The statements over one claim table and its positions. Cloning one is cheap, and its text is the key of sqlx's
/// statement cache.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    pub(crate) table: TableName,
    quote: char,
    /// Whether the server keeps them, each under a name.
    pub(crate) named: bool,
    /// Inserts a claim.
    pub(crate) claim: SqlStr,
    /// Reads what a claim holds.
    pub(crate) recall: SqlStr,
    /// Stores a value with a claim.
    pub(crate) store: SqlStr,
    /// Moves an entity forward.
    pub(crate) advance: SqlStr,
    /// Reads how far an entity is.
    pub(crate) position: SqlStr,
    /// Reads when a claim expires.
    pub(crate) find: SqlStr,
    /// Deletes a claim.
    pub(crate) forget: SqlStr,
}

/// The texts of [`Statements`], with `{table}` and `{positions}` where the tables' names go.
pub(crate) struct Texts {
    pub(crate) quote: char,
    pub(crate) claim: &'static str,
    pub(crate) recall: &'static str,
    pub(crate) store: &'static str,
    pub(crate) advance: &'static str,
    pub(crate) position: &'static str,
    pub(crate) find: &'static str,
    pub(crate) forget: &'static str,
}

impl Texts {
    pub(crate) fn over(&self, table: &TableName) -> Statements {
        let fill = |text: &str| self.fill(text, table);
        Statements {
            table: table.clone(),
            quote: self.quote,
            named: true,
            claim: fill(self.claim),
            recall: fill(self.recall),
            store: fill(self.store),
            advance: fill(self.advance),
            position: fill(self.position),
            find: fill(self.find),
            forget: fill(self.forget),
        }
    }

    fn fill(&self, text: &str, table: &TableName) -> SqlStr {
        // Safe: a `TableName` holds nothing but plain identifiers.
        AssertSqlSafe(Arc::<str>::from(table.fill(text, self.quote))).into_sql_str()
    }
}

impl Statements {
    /// A statement that is not needed for every message.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn fill(&self, text: &'static str) -> SqlStr {
        // Safe: as above.
        AssertSqlSafe(Arc::<str>::from(self.fill_text(text))).into_sql_str()
    }

    pub(crate) fn fill_text(&self, text: &str) -> String {
        self.table.fill(text, self.quote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_never_escape_their_quotes() {
        let table = TableName::parse("app.order").unwrap_or_default();
        assert_eq!(table.quoted('"'), r#""app"."order""#);
        assert_eq!(table.migrations_quoted('`'), "`app`.`order_migrations`");
        for bad in ["", ".", "a.", ".a", "a.b.c", "a\"b", "a b", "1a", "ä", &"a".repeat(64)] {
            assert!(TableName::parse(bad).is_err(), "{bad}");
        }
    }
}
