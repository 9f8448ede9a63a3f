package observe

import (
	"math"
	"testing"
)

const stat = "cpu  1000 200 300 4000 50 10 40 400 100 20\n" +
	"cpu0 500 100 150 2000 25 5 20 200 50 10\n" +
	"cpu1 500 100 150 2000 25 5 20 200 50 10\n" +
	"intr 3441461 0 0\nctxt 10501457\n"

func TestTimeOfTheMachineIsReadFromTheSumOfAllCPUs(t *testing.T) {
	pressure := "some avg10=0.17 avg60=0.43 avg300=0.43 total=17290348\n" +
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=5500000\n"
	time := machineSinceBoot(stat, pressure)
	if time == nil || time.CPUs != 2 || time.MemoryStalledSeconds == nil {
		t.Fatalf("%+v", time)
	}
	for _, pair := range [][2]float64{
		{time.TotalSeconds, 60}, {time.BusySeconds, 15}, {time.InterruptSeconds, 0.5}, {time.StealSeconds, 4},
		{*time.MemoryStalledSeconds, 5.5},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%v, not %v, in %+v", pair[0], pair[1], time)
		}
	}
	between := machineBetween(time, machineSinceBoot(stat, ""))
	if between.TotalSeconds != 0 || between.CPUs != 2 || between.MemoryStalledSeconds != nil {
		t.Errorf("%+v", between)
	}
}

func TestAStatFileWithoutCountsGivesNoTime(t *testing.T) {
	for _, stat := range []string{"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4\n", "cpu  1 2 3 4 x 6 7 8\n"} {
		if time := machineSinceBoot(stat, "nonsense"); time != nil {
			t.Errorf("%q: %+v", stat, time)
		}
	}
	if between := machineBetween(nil, nil); between != nil {
		t.Errorf("%+v", between)
	}
}

func TestTheMachineOfThisTestHasATime(t *testing.T) {
	if time := machineNow(); time == nil || time.CPUs == 0 || time.TotalSeconds == 0 {
		t.Errorf("%+v", time)
	}
}
