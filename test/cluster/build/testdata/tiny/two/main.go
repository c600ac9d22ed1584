// Command two stands in for a program that takes minutes to build.
package main

func main() { print("two") }
