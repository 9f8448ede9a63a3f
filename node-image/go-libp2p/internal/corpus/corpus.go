// Package corpus helps fuzz targets, which are in tests: it has the inputs that they share with those of the
// Rust node, and limits the memory that a parser may allocate.
package corpus

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"
)

// most bytes that reading an input may allocate, freed ones included: Go does not count what one goroutine
// holds. Parsers of the Rust node may hold as much at a time.
const most = 8 << 20

// Add the inputs of a target of tools/fuzz, which tests read as they are and the fuzzer changes.
func Add(f *testing.F, target string) {
	f.Helper()
	for _, input := range Inputs(f, target) {
		f.Add(input)
	}
}

// Inputs of a target of tools/fuzz.
func Inputs(tb testing.TB, target string) [][]byte {
	tb.Helper()
	// Tests run in the folder of their package.
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "tools", "fuzz", "corpus", target, "*"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no inputs in tools/fuzz/corpus/%s: %v", target, err)
	}
	inputs := make([][]byte, 0, len(files))
	for _, file := range files {
		input, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		inputs = append(inputs, input)
	}
	return inputs
}

// LimitMemory fails the test if read allocates more than most bytes.
func LimitMemory(t *testing.T, read func()) {
	t.Helper()
	before := allocated()
	read()
	if took := allocated() - before; took > most {
		t.Errorf("allocated %d bytes, more than %d", took, most)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
