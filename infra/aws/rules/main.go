// Command rules writes the routing table as listener rules of an Application Load Balancer: infra/aws/rules.yaml. Run
// it with make aws-rules. A test checks that the file is up to date.
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
