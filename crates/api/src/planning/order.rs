//! The running order of trials.
//!
//! In each iteration, cells of one network follow each other, so that links change as rarely as possible.
//! Within a network their order is random: otherwise the same cell would always come after the same other
//! one, and would have whatever that leaves behind, warm caches or used-up CPU credits. The two trials of a
//! pair of cells run right after each other, or with only that of their control between them, since
//! neighbours differ least. Which is first is random: then every pattern of signs of their differences is
//! equally likely if baseline and candidate are equal, whatever the noise. With a control, dice decide
//! between the six orders of the three: the same is then true of any two of them. The baseline is not always
//! in the middle: it would always run second, and the others never.

use perfrun_contract::{
    compare::CellPair,
    plan::{Cell, Iteration, Order, Trial},
};
use rand::{Rng, RngExt as _, SeedableRng, rngs::Xoshiro256PlusPlus, seq::SliceRandom};

/// The iterations of a run.
pub(super) struct Iterations {
    /// Before the measured ones.
    pub warmup: u32,
    /// Measured.
    pub iterations: u32,
    /// The order of their trials.
    pub order: Order,
    /// The seed of that order. Without one, trials are in the order of cells.
    pub seed: Option<u32>,
}

impl Iterations {
    /// All trials, in running order.
    pub(super) fn trials(&self, cells: &[Cell], cell_pairs: &[CellPair]) -> Vec<Trial> {
        let numbered = |warmup: bool, count: u32| (0..count).map(move |number| Iteration { warmup, number });
        let iterations = numbered(true, self.warmup).chain(numbered(false, self.iterations));
        match self.order {
            Order::Interleaved => {
                let blocks = blocks(cells, cell_pairs);
                iterations
                    .flat_map(|iteration| {
                        let cells = self.shuffled(&blocks, iteration);
                        cells.into_iter().map(move |cell| trial(cell, iteration))
                    })
                    .collect()
            }
            Order::Sequential => (0..cells.len())
                .flat_map(|cell| iterations.clone().map(move |iteration| trial(cell, iteration)))
                .collect(),
        }
    }

    /// The cells of an iteration, in running order.
    fn shuffled(&self, networks: &[Vec<Block>], Iteration { warmup, number }: Iteration) -> Vec<usize> {
        let Some(seed) = self.seed else {
            return networks.iter().flatten().flat_map(Block::cells).collect();
        };
        // An iteration has a sequence of its own, so that more iterations do not change the earlier ones.
        let seed = u64::from(seed) << 32 | u64::from(number) << 1 | u64::from(warmup);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut order = vec![];
        for network in networks {
            let mut blocks = network.clone();
            blocks.shuffle(&mut random);
            order.extend(blocks.iter().flat_map(|block| block.in_random_order(&mut random)));
        }
        order
    }
}

/// Cells whose trials are neighbours in each iteration.
#[derive(Clone, Copy)]
enum Block {
    /// A cell that is compared with no other.
    One(usize),
    /// A pair of cells, with its control if it has one.
    CellPair(CellPair),
}

impl Block {
    fn cells(&self) -> Vec<usize> {
        match *self {
            Self::One(cell) => vec![cell],
            Self::CellPair(cell_pair) => cell_pair.cells().collect(),
        }
    }

    /// The cells in an order that is as likely as any other.
    fn in_random_order(&self, random: &mut impl Rng) -> Vec<usize> {
        let Self::CellPair(cell_pair) = *self else {
            return self.cells();
        };
        let mut cells = vec![cell_pair.baseline, cell_pair.candidate];
        if random.random() {
            cells.reverse();
        }
        if let Some(control) = cell_pair.control {
            cells.insert(random.random_range(0..=cells.len()), control);
        }
        cells
    }
}

/// The blocks of each network.
fn blocks(cells: &[Cell], cell_pairs: &[CellPair]) -> Vec<Vec<Block>> {
    let mut networks: Vec<(&str, Vec<Block>)> = vec![];
    for (index, cell) in cells.iter().enumerate() {
        let block = match cell_pairs
            .iter()
            .find(|cell_pair| cell_pair.cells().any(|cell| cell == index))
        {
            Some(cell_pair) if cell_pair.baseline == index => Block::CellPair(*cell_pair),
            Some(_) => continue,
            None => Block::One(index),
        };
        match networks.last_mut() {
            Some((network, blocks)) if *network == cell.network => blocks.push(block),
            _ => networks.push((&cell.network, vec![block])),
        }
    }
    networks.into_iter().map(|(_, blocks)| blocks).collect()
}

fn trial(cell: usize, Iteration { warmup, number }: Iteration) -> Trial {
    Trial {
        id: format!("c{cell}.{}{number}", if warmup { 'w' } else { 'i' }),
        cell,
        iteration: number,
        warmup,
    }
}
