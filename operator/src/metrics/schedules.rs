//! When schedules last created a run, and when a run of theirs last succeeded.
//!
//! Only the operator that leads exports them, as it does runs.

use std::{fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, runtime::reflector::Store};
use parking_lot::Mutex;
use perfrun_api::schedule::{PerfSchedule, PerfScheduleStatus};
use perfrun_contract::metrics::{Family, schedule};
use perfrun_metrics::encode_samples;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::schedule::WatchedSchedule;

/// Exports schedules as they are at the time of a scrape.
#[derive(Clone, Default)]
pub(super) struct Schedules(Arc<Mutex<Option<Store<WatchedSchedule>>>>);

impl Schedules {
    /// Sets the schedules to export.
    pub(super) fn watch(&self, schedules: Option<Store<WatchedSchedule>>) {
        *self.0.lock() = schedules;
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedules").finish_non_exhaustive()
    }
}

impl Collector for Schedules {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let schedules = self.0.lock().as_ref().map(Store::state).unwrap_or_default();
        let schedules: Vec<_> = schedules
            .iter()
            .filter_map(|schedule| schedule.0.as_ref().ok())
            .collect();
        let mut encode = |family: &Family, time: fn(&PerfScheduleStatus) -> Option<&Time>| {
            let samples = schedules
                .iter()
                .filter_map(|schedule| sample(schedule, time(schedule.status.as_ref()?)?));
            encode_samples(&mut encoder, family, samples)
        };
        encode(&schedule::LAST_DUE, |status| status.last_schedule_time.as_ref())?;
        encode(&schedule::LAST_SUCCESS, |status| {
            status.last_successful_time.as_ref()
        })
    }
}

type Sample = ([(&'static str, String); 2], f64);

fn sample(schedule: &PerfSchedule, time: &Time) -> Option<Sample> {
    let labels = [
        ("run_namespace", schedule.namespace()?),
        ("schedule", schedule.name_any()),
    ];
    Some((labels, time.0.as_millisecond() as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    #[test]
    fn the_times_of_a_schedule_are_described_and_exported() {
        let (store, mut writer) = reflector::store();
        let schedule = json!({
            "metadata": {"name": "nightly", "namespace": "bench"},
            "spec": {"schedule": "@daily", "runTemplate": {"spec": {"workload": {"ping": {}}}}},
            "status": {"lastScheduleTime": "1970-01-02T00:00:00Z"},
        });
        let schedule = serde_json::from_value(schedule).unwrap();
        writer.apply_watcher_event(&watcher::Event::Apply(schedule));
        let metrics = super::super::Metrics::new();
        metrics.watch_schedules(Some(store));
        let page = metrics.encode();
        assert_eq!(perfrun_metrics::undescribed(&page), [""; 0]);
        let line = "perfrun_schedule_last_due_timestamp_seconds{run_namespace=\"bench\",schedule=\"nightly\"} 86400.0";
        assert!(page.contains(line), "{page}");
        assert!(!page.contains("last_success"), "none has succeeded: {page}");
    }
}
