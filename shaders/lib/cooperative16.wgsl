// Cooperative matrices of 16 x 16, the size that Vulkan drivers offer. All lanes of a subgroup multiply such matrices together. Fills the
// shader slot `cooperative`.
enable f16;
enable wgpu_cooperative_matrix;
const SIZE: u32 = 16u;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sum = coop_mat16x16<f32, C>;
