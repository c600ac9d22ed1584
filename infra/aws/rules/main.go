// Command rules writes the front door's table as listener rules of an Application Load Balancer: infra/aws/rules.yaml. make
// aws-rules runs it; a test holds that the file is what it writes.
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
