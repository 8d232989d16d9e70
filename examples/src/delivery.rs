use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

/// The deliveries that the examples use where no file is given.
const SAMPLE: &[u8] = include_bytes!("../deliveries.jsonl");

/// One delivery of a message, as a webhook's sender or a queue hands it over.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Delivery {
    /// The sender's id of the message: the same on every redelivery.
    #[serde(rename = "delivery")]
    pub id: String,
    /// What has happened.
    pub event: String,
    /// Everything else.
    pub payload: serde_json::Value,
}

impl Delivery {
    /// Reads a file of JSON lines, or the sample.
    ///
    /// # Errors
    ///
    /// Names the file, the line and the problem.
    pub fn read(file: Option<&Path>) -> Result<Vec<Self>> {
        let (name, content) = match file {
            Some(path) => {
                let name = path.display().to_string();
                let content = fs::read(path).with_context(|| format!("cannot read `{name}`"))?;
                (name, content)
            }
            None => ("deliveries.jsonl".to_owned(), SAMPLE.to_vec()),
        };
        let lines = (1..).zip(content.split(|&byte| byte == b'\n'));
        let deliveries: Result<Vec<Self>> = lines
            .filter(|(_, line)| !line.trim_ascii().is_empty())
            .map(|(number, line)| Self::parse(line).with_context(|| format!("`{name}`, line {number}")))
            .collect();
        let deliveries = deliveries?;
        ensure!(!deliveries.is_empty(), "`{name}` holds no deliveries");
        Ok(deliveries)
    }

    fn parse(line: &[u8]) -> Result<Self> {
        // serde would also take an array of the three values.
        ensure!(line.trim_ascii().starts_with(b"{"), "not a JSON object");
        let delivery: Self = serde_json::from_slice(line).map_err(|error| {
            // serde_json counts lines inside the text it was given, which is one line.
            let text = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            anyhow!("{} (column {})", text.strip_suffix(&place).unwrap_or(&text), error.column())
        })?;
        ensure!(!delivery.id.trim().is_empty(), "`delivery` is blank, so a duplicate could not be recognised");
        Ok(delivery)
    }

    /// How many different messages there are.
    #[must_use]
    pub fn distinct(deliveries: &[Self]) -> usize {
        deliveries.iter().map(|delivery| &*delivery.id).collect::<HashSet<_>>().len()
    }
}
