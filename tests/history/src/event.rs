//! Losses as a fleet tells them in its `events.jsonl`.

use serde_json::Value;

use crate::record::Loss;

/// An event that tells a loss and does not say of what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event does not say {key}: {event}")]
pub struct Vague {
    key: &'static str,
    event: String,
}

impl Loss {
    /// What an event tells as lost; `None` if it tells something else.
    ///
    /// # Errors
    /// If it is about a loss and a number is missing.
    pub fn of_event(event: &Value) -> Result<Option<Self>, Vague> {
        if event["kind"] != "updates_lost" {
            return Ok(None);
        }
        let number = |key| {
            event[key].as_u64().ok_or_else(|| Vague {
                key,
                event: event.to_string(),
            })
        };
        Ok(Some(Self {
            shard: number("shard")? as u32,
            lineage: number("lineage")?,
            updates: number("lost_updates")?,
            samples: number("lost_samples")?,
            too_high_max: 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_tells_a_loss_or_says_what_is_missing() {
        let mut event = json!({
            "kind": "updates_lost", "shard": 2, "lineage": 9, "lost_updates": 40, "lost_samples": 16
        });
        let loss = Loss::of_event(&event).unwrap().unwrap();
        assert_eq!((loss.shard, loss.lineage), (2, 9));
        assert_eq!((loss.updates, loss.samples), (40, 16));
        assert_eq!(Loss::of_event(&json!({"kind": "snapshot"})), Ok(None));
        event["lineage"] = Value::Null;
        let vague = Loss::of_event(&event).unwrap_err().to_string();
        assert!(vague.contains("does not say lineage"), "{vague}");
    }
}
