package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCPUModelsOfTwoArchitecturesAreRead(t *testing.T) {
	for cpuinfo, model := range map[string]string{
		"processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n": "Some CPU @ 2 GHz",
		"CPU part\t: 0xd0c\n":                              "0xd0c",
		"":                                                 "unknown",
	} {
		if got := cpuModel(cpuinfo); got != model {
			t.Errorf("%q, not %q", got, model)
		}
	}
}

func TestAHypervisorHasANameOrSetsAFlag(t *testing.T) {
	guest := "flags\t\t: fpu vme hypervisor lahf_lm\n"
	got := [3]string{hypervisor("xen", guest), hypervisor("", guest), hypervisor("", "flags\t\t: fpu vme\n")}
	if got != [3]string{"xen", "unknown", ""} {
		t.Error(got)
	}
}

func TestMitigationsAreNamedInOrder(t *testing.T) {
	folder := t.TempDir()
	for name, state := range map[string]string{
		"spectre_v2": "Mitigation: Retpolines\n", "meltdown": "Not affected\n", "spec_store_bypass": "Vulnerable\n",
		"spectre_v1": "Mitigation: usercopy/swapgs barriers\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := mitigations(folder); got != "on for spectre_v1, spectre_v2; off for spec_store_bypass" {
		t.Error(got)
	}
	if got := mitigations(filepath.Join(folder, "none")); got != "" {
		t.Error(got)
	}
}

func TestTheRunningProgramAndLoopbackAreDescribed(t *testing.T) {
	if digest := programSHA256(); len(digest) != 64 {
		t.Errorf("%q is not a SHA-256 digest", digest)
	}
	if bytes := mtu("127.0.1.2"); bytes == nil || *bytes < 1280 {
		t.Errorf("the MTU of loopback is %v", bytes)
	}
}
