// SPDX-License-Identifier: Apache-2.0
// Linking this program is the test: every symbol of one library must come from its declared
// dependencies.
int main() { return 0; }
