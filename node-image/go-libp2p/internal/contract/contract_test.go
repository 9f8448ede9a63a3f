package contract

import (
	"encoding/json"
	"testing"
)

func TestByteSizesAreNumbersOrTextWithASuffix(t *testing.T) {
	for text, expected := range map[string]ByteSize{`1500`: 1500, `"64Ki"`: 65536, `"10M"`: 10_000_000, `"1Gi"`: 1 << 30} {
		var size ByteSize
		if err := json.Unmarshal([]byte(text), &size); err != nil || size != expected {
			t.Errorf("%s is %d: %v", text, size, err)
		}
	}
	for _, text := range []string{`""`, `"Ki"`, `"1.5Gi"`, `-1`, `"1 Ki"`, `"99999999999Ti"`} {
		if err := json.Unmarshal([]byte(text), new(ByteSize)); err == nil {
			t.Errorf("%s is not a byte size", text)
		}
	}
}

func TestStatesHaveAnOrder(t *testing.T) {
	if later, known := Later(Ready, Preparing); !later || !known {
		t.Error("ready is later than preparing")
	}
	if later, _ := Later(Ready, Ready); later {
		t.Error("ready is not later than itself")
	}
	if _, known := Later(Ready, "done"); known {
		t.Error("done is not a state")
	}
}
