//! What links carry on which no rate is set.

use std::collections::BTreeSet;

use perfrun_contract::{network::NetworkImpairments, record::Leg};
use perfrun_link::{
    Impairment,
    probe::{ProbePlan, Rate},
};

use super::Links;

impl Links<'_> {
    /// Fills one link of each kind (for example from clients to servers) in both directions, one after the
    /// other, because nodes on one machine share its CPUs.
    pub(super) async fn add_available_rates(&self, legs: &mut [Leg], impairments: &NetworkImpairments) {
        let mut kinds = BTreeSet::new();
        for leg in legs {
            let Leg { client, server, .. } = &*leg;
            let roles = [client, server].map(|name| self.agents.get(name).map(|agent| agent.role));
            if !kinds.insert(roles) {
                continue;
            }
            let Ok((to_server, to_client)) = self.impairments_of_pair(client, server, impairments) else {
                continue;
            };
            let rate_to_server = match leg.measured.rate {
                None => self.available_rate(client, server, to_server, to_client).await,
                rate => rate,
            };
            let rate_to_client = match leg.rate_to_client {
                None => self.available_rate(server, client, to_client, to_server).await,
                rate => rate,
            };
            (leg.measured.rate, leg.rate_to_client) = (rate_to_server, rate_to_client);
        }
    }

    /// `None` if the rate could not be measured, which does not rule out links that behave as configured. An
    /// agent that is gone is noticed at the next call.
    async fn available_rate(
        &self,
        from: &str,
        to: &str,
        forward: &Impairment,
        backward: &Impairment,
    ) -> Option<Rate> {
        let plan = ProbePlan::of_available_rate(forward, backward)?;
        match self.measure(from, to, plan).await {
            Ok(measured) => measured.rate,
            Err(not_ready) => {
                tracing::debug!(
                    from,
                    to,
                    error = not_ready.failure.message,
                    "the link was not filled"
                );
                None
            }
        }
    }
}
