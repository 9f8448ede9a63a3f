//! Ages and durations as kubectl writes them.

/// Seconds, in at most two units: the higher the age, the coarser.
pub fn age(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |great: (i64, &str), small: (i64, &str)| {
        let rest = seconds % great.0 / small.0;
        let rest = if rest > 0 {
            format!("{rest}{}", small.1)
        } else {
            String::new()
        };
        format!("{}{}{rest}", seconds / great.0, great.1)
    };
    match seconds {
        // The clock of this machine may be behind that of the cluster.
        ..=0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two((MINUTE, "m"), (1, "s")),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two((HOUR, "h"), (MINUTE, "m")),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two((DAY, "d"), (HOUR, "h")),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two((YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let ages = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (10 * 60 + 59, "10m"),
            (179 * 60, "179m"),
            (3 * 3600 + 5 * 60, "3h5m"),
            (47 * 3600, "47h"),
            (50 * 3600, "2d2h"),
            (100 * 86400, "100d"),
            (3 * 365 * 86400, "3y"),
            (i64::MAX, "292471208677y"),
        ];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
    }
}
