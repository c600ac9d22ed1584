// Command rules prints infra/aws/rules.yaml: the routing table as listener rules of an Application Load Balancer.
package main

import (
	"fmt"
	"os"
)

func main() {
	text, err := Template()
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
