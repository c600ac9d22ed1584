// Package tests stands in for tests that take minutes to build.
package tests

import (
	"fmt"
	"testing"
)

func TestMain(*testing.M) { fmt.Print("three") }
