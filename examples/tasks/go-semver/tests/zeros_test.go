package semver

import (
	"errors"
	"testing"
)

func TestLeadingZeros(t *testing.T) {
	for _, text := range []string{"01.1.1", "1.01.1", "1.1.01", "v01", "1.00"} {
		if _, err := NewVersion(text); !errors.Is(err, ErrSegmentStartsZero) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"0.0.0", "v1.2", "10.20.30", "0"} {
		if _, err := NewVersion(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
